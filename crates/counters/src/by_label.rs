//! Numbers by the values of a label, which are the variants of an enum.

/// Declares numbers by a label: a struct that has one for each variant of an enum, which has `strum::VariantArray` and
/// `strum::IntoStaticStr`. That trait has to be in scope.
///
/// ```
/// use strum::VariantArray as _;
///
/// #[derive(Clone, Copy, strum::VariantArray, strum::IntoStaticStr)]
/// pub enum Grain {
///     Rye,
///     Wheat,
/// }
///
/// counters::counts_by! {
///     /// Sacks of each grain.
///     pub struct Sacks: "grain" of Grain
/// }
///
/// let mut sacks = Sacks::default();
/// sacks.add(Grain::Rye, 3);
/// assert_eq!((sacks.count(Grain::Rye), sacks.count(Grain::Wheat)), (3, 0));
/// ```
#[macro_export]
macro_rules! counts_by {
    ($(#[$meta:meta])* pub struct $set:ident: $label:literal of $of:ty) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $set([u64; <$of>::VARIANTS.len()]);

        impl Default for $set {
            fn default() -> Self {
                $set([0; <$of>::VARIANTS.len()])
            }
        }

        impl $set {
            /// Counts so many.
            #[inline]
            pub fn add(&mut self, of: $of, count: u64) {
                self.0[of as usize] += count;
            }

            /// It is so many now.
            pub fn set(&mut self, of: $of, count: u64) {
                self.0[of as usize] = count;
            }

            /// How many of one.
            pub fn count(&self, of: $of) -> u64 {
                self.0[of as usize]
            }

            /// Each with its count.
            pub fn iter(&self) -> impl Iterator<Item = ($of, u64)> + '_ {
                <$of>::VARIANTS.iter().copied().zip(self.0)
            }
        }

        impl $crate::Cell for $set {
            const WORDS: usize = <$of>::VARIANTS.len();

            fn put(&self, word: &mut impl FnMut(u64)) {
                self.0.iter().for_each(|count| word(*count));
            }

            fn take(word: &mut impl FnMut() -> u64) -> Self {
                $set(std::array::from_fn(|_| word()))
            }

            fn value(&self) -> $crate::Value<'_> {
                $crate::Value::ByLabel($label, self.iter().map(|(of, count)| (of.into(), count)).collect())
            }
        }
    };
}
