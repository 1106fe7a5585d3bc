//! What is written to standard error, and how that changes while the server runs.

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use server::config::{Config, LogFormat};
use server::http::admin::LogFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

/// Begins with `log.filter`. Returned is what changes it.
pub fn start(config: &Config) -> anyhow::Result<Arc<dyn LogFilter>> {
    let text = Mutex::new(config.log.filter.clone());
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(config)?)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    Ok(match config.log.format {
        LogFormat::Text => {
            let subscriber = subscriber.with_filter_reloading();
            let changing = Changing { handle: subscriber.reload_handle(), text };
            subscriber.init();
            Arc::new(changing)
        }
        LogFormat::Json => {
            let subscriber = subscriber.json().with_filter_reloading();
            let changing = Changing { handle: subscriber.reload_handle(), text };
            subscriber.init();
            Arc::new(changing)
        }
    })
}

/// That of the settings.
pub fn filter(config: &Config) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(&config.log.filter).with_context(|| format!("log.filter {:?}", config.log.filter))
}

struct Changing<S> {
    handle: Handle<EnvFilter, S>,
    /// As it was written.
    text: Mutex<String>,
}

impl<S> LogFilter for Changing<S> {
    fn current(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        let parsed = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        self.handle.reload(parsed).map_err(|error| error.to_string())?;
        filter.clone_into(&mut text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_that_is_set_is_in_effect_and_one_that_is_none_changes_nothing() {
        let subscriber = tracing_subscriber::fmt().with_env_filter(EnvFilter::new("error")).with_filter_reloading();
        let changing = Changing { handle: subscriber.reload_handle(), text: Mutex::new("error".to_owned()) };
        tracing::subscriber::with_default(subscriber.finish(), || {
            assert!(!tracing::enabled!(target: "server", Level::INFO));
            changing.set("error,server=info").expect("a filter");
            assert!(tracing::enabled!(target: "server", Level::INFO));
            assert!(changing.set("no=such=thing").is_err());
            assert!(tracing::enabled!(target: "server", Level::INFO));
            assert_eq!(changing.current(), "error,server=info");
        });
    }
}
