//! The dependency descriptor, a header extension that says how frames depend on each other without a look at them.
//!
//! In: the extension's value; the structure from the last packet that carried one.
//! Out: where frames start and end; the layer of a frame, and whether a receiver may switch up there.
//! Cost: three bytes per packet, and a table look-up for the layer; a structure is about 1.1 KB, once per keyframe.
//! Source: RTP Payload Format For AV1, appendix A.

/// The most templates that a structure may have, as their ids have six bits.
const TEMPLATES_MAX: usize = 64;
/// The most decode targets: five bits, plus one.
const DECODE_TARGETS_MAX: usize = 32;

/// The most temporal and spatial layers: ids have three and two bits in OBU headers (AV1 §5.3.3).
const TEMPORAL_LAYERS_MAX: u8 = 8;
const SPATIAL_LAYERS_MAX: u8 = 4;

/// The indications for "not in this decode target" and "who decodes this frame may switch to the target here".
const NOT_PRESENT: u8 = 0;
const SWITCH: u8 = 2;

/// What is needed of the fields that every descriptor has, and which of the optional parts follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The first packet of a frame, in one spatial layer.
    pub start_of_frame: bool,
    /// The last packet of a frame, in one spatial layer.
    pub end_of_frame: bool,
    /// 6 bits.
    pub template_id: u8,
    /// A structure is attached, as on the first packet of a keyframe.
    pub has_structure: bool,
    has_active_decode_targets: bool,
    has_custom_indications: bool,
}

impl Descriptor {
    /// Reads the fields that need no structure; `None` when there are fewer than three bytes.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (&[first, ..], extended) = value.split_first_chunk::<3>()?;
        let flags = extended.first().copied().unwrap_or(0);
        Some(Descriptor {
            start_of_frame: first & 0x80 != 0,
            end_of_frame: first & 0x40 != 0,
            template_id: first & 0x3f,
            has_structure: flags & 0x80 != 0,
            has_active_decode_targets: flags & 0x40 != 0,
            has_custom_indications: flags & 0x20 != 0,
        })
    }
}

/// Where a frame stands among the layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameLayer {
    /// Size of the picture, 0 the smallest.
    pub spatial_id: u8,
    /// Temporal layer, 0 the lowest, which needs no other.
    pub temporal_id: u8,
    /// Bit t: who decodes this frame may take the temporal layers up to t from here on.
    pub switch_to: u8,
}

/// What the templates of a coded video sequence say. Valid until the next structure.
#[derive(Clone, Debug)]
pub struct Structure {
    template_id_offset: u8,
    template_count: u8,
    templates: [Template; TEMPLATES_MAX],
    decode_target_count: u8,
    /// Highest spatial and temporal layer of each decode target.
    target_layers: [(u8, u8); DECODE_TARGETS_MAX],
}

#[derive(Clone, Copy, Debug, Default)]
struct Template {
    spatial_id: u8,
    temporal_id: u8,
    /// Two bits per decode target, the first target's in the lowest.
    indications: u64,
}

impl Structure {
    /// Reads the structure attached to a descriptor, as far as layers and switching need it. `None` when there is
    /// none, or it is cut, or has more layers than AV1 knows.
    pub fn parse(value: &[u8]) -> Option<Self> {
        if !Descriptor::parse(value)?.has_structure {
            return None;
        }
        let mut bits = Bits { data: value, at: EXTENDED_FLAGS_END };
        let template_id_offset = bits.take(6)?;
        let decode_target_count = bits.take(5)? + 1;
        let mut structure = Structure {
            template_id_offset,
            template_count: 0,
            templates: [Template::default(); TEMPLATES_MAX],
            decode_target_count,
            target_layers: [(0, 0); DECODE_TARGETS_MAX],
        };
        structure.read_layers(&mut bits)?;
        for template in structure.templates.iter_mut().take(structure.template_count.into()) {
            template.indications = bits.take_indications(decode_target_count)?;
        }
        structure.derive_targets();
        Some(structure)
    }

    /// The layer of the frame that a packet with this descriptor belongs to; `None` when the structure has no such
    /// template, for then it is another sequence's.
    pub fn layer(&self, value: &[u8]) -> Option<FrameLayer> {
        let descriptor = Descriptor::parse(value)?;
        let index = descriptor.template_id.wrapping_sub(self.template_id_offset) & 0x3f;
        let template = self.templates.get(..self.template_count.into())?.get(usize::from(index))?;
        let indications = match descriptor.has_custom_indications {
            // They stand behind the structure, which is not read that far; then nothing says "switch".
            true if descriptor.has_structure => 0,
            true => self.custom_indications(&descriptor, value)?,
            false => template.indications,
        };
        let (spatial_id, temporal_id) = (template.spatial_id, template.temporal_id);
        Some(FrameLayer { spatial_id, temporal_id, switch_to: self.switch_to(spatial_id, indications) })
    }

    /// The temporal layers to which one may switch at a frame, by the targets of its spatial layer. Those above always require
    /// it but in keyframes, as nobody begins with them here; that says nothing of who decodes them already.
    fn switch_to(&self, spatial_id: u8, indications: u64) -> u8 {
        let (mut allowed, mut denied) = (0, 0);
        for (indication, (target_spatial_id, temporal_id)) in self.targets(indications) {
            match indication {
                _ if target_spatial_id != spatial_id => {}
                NOT_PRESENT => {}
                SWITCH => allowed |= 1 << temporal_id,
                _ => denied |= 1 << temporal_id,
            }
        }
        allowed & !denied
    }

    fn custom_indications(&self, descriptor: &Descriptor, value: &[u8]) -> Option<u64> {
        let mut bits = Bits { data: value, at: EXTENDED_FLAGS_END };
        if descriptor.has_active_decode_targets {
            bits.at += usize::from(self.decode_target_count);
        }
        bits.take_indications(self.decode_target_count)
    }

    /// Each template's layer, as a step from the one before it.
    fn read_layers(&mut self, bits: &mut Bits<'_>) -> Option<()> {
        let (mut spatial_id, mut temporal_id) = (0_u8, 0_u8);
        for template in &mut self.templates {
            if temporal_id >= TEMPORAL_LAYERS_MAX || spatial_id >= SPATIAL_LAYERS_MAX {
                return None;
            }
            (template.spatial_id, template.temporal_id) = (spatial_id, temporal_id);
            self.template_count += 1;
            match bits.take(2)? {
                0 => {}
                1 => temporal_id += 1,
                2 => (spatial_id, temporal_id) = (spatial_id + 1, 0),
                _ => return Some(()),
            }
        }
        None
    }

    /// A decode target reaches as high as the highest template that is present in it.
    fn derive_targets(&mut self) {
        for index in 0..self.decode_target_count {
            let templates = self.templates.iter().take(self.template_count.into());
            let present = templates.filter(|template| indication(template.indications, index) != NOT_PRESENT);
            let highest = present.map(|template| (template.spatial_id, template.temporal_id));
            self.target_layers[usize::from(index)] =
                highest.fold((0, 0), |high, layer| (high.0.max(layer.0), high.1.max(layer.1)));
        }
    }

    /// Each decode target's indication, with its highest layers.
    fn targets(&self, indications: u64) -> impl Iterator<Item = (u8, (u8, u8))> {
        let targets = (0..self.decode_target_count).zip(self.target_layers);
        targets.map(move |(index, layers)| (indication(indications, index), layers))
    }
}

fn indication(indications: u64, target: u8) -> u8 {
    (indications >> (2 * target) & 3) as u8
}

/// Bits before the structure: the mandatory fields, then five flags.
const EXTENDED_FLAGS_END: usize = 24 + 5;

/// Reads bits from the highest to the lowest.
#[derive(Debug)]
struct Bits<'a> {
    data: &'a [u8],
    /// In bits.
    at: usize,
}

impl Bits<'_> {
    /// The next `count` bits, up to eight.
    fn take(&mut self, count: usize) -> Option<u8> {
        let mut value = 0;
        for at in self.at..self.at + count {
            value = value << 1 | self.data.get(at / 8)? >> (7 - at % 8) & 1;
        }
        self.at += count;
        Some(value)
    }

    fn take_indications(&mut self, target_count: u8) -> Option<u64> {
        let mut indications = 0;
        for index in 0..target_count {
            indications |= u64::from(self.take(2)?) << (2 * index);
        }
        Some(indications)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs (value, width) fields from the highest bit on.
    fn pack(fields: &[(u64, usize)]) -> Vec<u8> {
        let mut bits: Vec<u8> = Vec::new();
        for (value, width) in fields {
            bits.extend((0..*width).rev().map(|bit| (value >> bit & 1) as u8));
        }
        bits.chunks(8).map(|byte| byte.iter().enumerate().fold(0, |all, (at, bit)| all | bit << (7 - at))).collect()
    }

    /// A keyframe's descriptor: three temporal layers, three decode targets, template ids from 10 on.
    fn l1t3() -> Vec<u8> {
        pack(&[
            (0b10, 2),     // start, not end
            (10, 6),       // template
            (0x1234, 16),  // frame number
            (0b10000, 5),  // structure attached
            (10, 6),       // offset
            (2, 5),        // three decode targets
            (1, 2),        // next temporal layer
            (1, 2),        // next temporal layer
            (3, 2),        // no more templates
            (0b101010, 6), // T0: S S S
            (0b001001, 6), // T1: - S D
            (0b000010, 6), // T2: - - S
        ])
    }

    fn frame(template_id: u8) -> [u8; 3] {
        [0x80 | template_id, 0, 1]
    }

    #[test]
    fn the_mandatory_fields_are_read() {
        let descriptor = Descriptor::parse(&[0x45, 0x12, 0x34]).unwrap();
        assert!(!descriptor.start_of_frame && descriptor.end_of_frame && !descriptor.has_structure);
        assert_eq!(descriptor.template_id, 5);
        assert!(Descriptor::parse(&l1t3()).unwrap().has_structure);
        assert_eq!(Descriptor::parse(&[0x80, 0]), None);
    }

    #[test]
    fn layers_come_from_the_templates() {
        let structure = Structure::parse(&l1t3()).unwrap();
        let layer = |temporal_id, switch_to| Some(FrameLayer { spatial_id: 0, temporal_id, switch_to });
        assert_eq!(structure.layer(&frame(10)), layer(0, 0b111));
        assert_eq!(structure.layer(&frame(11)), layer(1, 0b010));
        assert_eq!(structure.layer(&frame(12)), layer(2, 0b100));
        assert_eq!(structure.layer(&frame(13)), None);
        assert_eq!(structure.layer(&frame(9)), None);
    }

    #[test]
    fn a_frame_may_bring_its_own_indications() {
        let structure = Structure::parse(&l1t3()).unwrap();
        // Custom indications: - - R, so no one may switch to the layer here.
        let value = pack(&[(0b11, 2), (12, 6), (7, 16), (0b00100, 5), (0b000011, 6)]);
        assert_eq!(structure.layer(&value).map(|layer| layer.switch_to), Some(0));
        let value = pack(&[(0b11, 2), (12, 6), (7, 16), (0b01100, 5), (0b111, 3), (0b000010, 6)]);
        assert_eq!(structure.layer(&value).map(|layer| layer.switch_to), Some(0b100));
    }

    #[test]
    fn one_may_switch_where_the_spatial_layer_of_the_frame_allows_it_whatever_those_above_require() {
        // Two spatial layers with two temporal ones each; targets S0T0, S0T1, S1T0, S1T1.
        let structure = Structure::parse(&pack(&[
            (0b10, 2),
            (0, 6),
            (0, 16),
            (0b10000, 5),
            (0, 6),
            (3, 5),
            (1, 2),
            (2, 2),
            (1, 2),
            (3, 2),
            (0b10_10_11_11, 8), // S0T0: S S R R
            (0b00_01_00_11, 8), // S0T1: - D - R
            (0b00_00_10_10, 8), // S1T0: - - S S
            (0b00_00_00_10, 8), // S1T1: - - - S
        ]));
        let structure = structure.unwrap();
        let layers = [0, 1, 2, 3].map(|template| structure.layer(&frame(template)).unwrap());
        assert_eq!(layers.map(|layer| (layer.spatial_id, layer.temporal_id)), [(0, 0), (0, 1), (1, 0), (1, 1)]);
        assert_eq!(layers.map(|layer| layer.switch_to), [0b11, 0, 0b11, 0b10]);
    }

    #[test]
    fn a_structure_with_more_layers_than_there_can_be_is_refused() {
        for (step, most) in [(1, 7), (2, 3)] {
            let with_steps = |count: usize| {
                let mut fields = vec![(0b10, 2), (0, 6), (0, 16), (0b10000, 5), (0, 6), (0, 5)];
                fields.extend(vec![(step, 2); count]);
                fields.push((3, 2));
                fields.extend(vec![(2, 2); count + 1]);
                Structure::parse(&pack(&fields))
            };
            assert!(with_steps(most).is_some() && with_steps(most + 1).is_none(), "step {step}");
        }
    }

    #[test]
    fn a_cut_or_endless_structure_is_refused() {
        let whole = l1t3();
        for len in 0..whole.len() {
            assert!(Structure::parse(&whole[..len]).is_none(), "{len}");
        }
        let mut endless = whole[..5].to_vec();
        endless.extend([0; 200]);
        assert!(Structure::parse(&endless).is_none());
        assert!(Structure::parse(&frame(10)).is_none());
    }
}
