//! Settings of the hub from the environment, with the names and defaults of `huggingface_hub`.
//!
//! A machine set up for Python works here. Nothing else in the crate reads these variables. The token has no
//! `Debug` or `Display` that would show it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::expand_tilde;
use crate::bounded_read;

/// Access token. It is used in one header and nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Strips whitespace, because tokens often come from files; `None` for an empty text.
    pub fn new(text: &str) -> Result<Option<Self>> {
        let text = text.trim();
        ensure!(
            text.bytes().all(|b| b.is_ascii_graphic()),
            "the Hugging Face token has characters no token has: check HF_TOKEN and the token file"
        );
        Ok((!text.is_empty()).then(|| Token(text.to_owned())))
    }

    pub(super) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

/// Settings of the hub.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// Folder of `models--owner--name` and `datasets--owner--name` (`HF_HUB_CACHE`).
    pub cache_dir: PathBuf,
    /// Address of the hub without a slash at the end (`HF_ENDPOINT`).
    pub endpoint: String,
    pub token: Option<Token>,
    /// Place where the token was found, for messages; `None` without a token, or if the caller passed it.
    pub token_place: Option<String>,
    /// Reason why the token that is set cannot be used. The hub is then not asked: without it a gated model would seem denied.
    pub token_fault: Option<String>,
    /// Whether only the cache is used (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// Whether a model whose weights are not on this machine is described without them, and they are not downloaded.
    pub without_weights: bool,
    /// Longest time that the hub may take to describe a repository (`HF_HUB_ETAG_TIMEOUT`).
    pub timeout: Duration,
    /// Longest time that a server may send nothing while a file is downloaded (`HF_HUB_DOWNLOAD_TIMEOUT`).
    pub idle: Duration,
    /// How often a file is tried before a broken transfer is an error.
    pub attempts: u32,
}

impl HubSettings {
    /// Settings of the public hub without a token.
    pub fn with_cache_dir(cache_dir: impl Into<PathBuf>) -> Self {
        HubSettings {
            cache_dir: cache_dir.into(),
            endpoint: "https://huggingface.co".to_owned(),
            token: None,
            token_place: None,
            token_fault: None,
            offline: false,
            without_weights: false,
            timeout: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            attempts: 4,
        }
    }

    /// Reads the settings from the environment. A token that cannot be read is an error only where the hub is asked.
    pub fn from_env() -> Result<Self> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the settings by `lookup`; an empty variable counts as unset.
    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let get = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let user = get("HOME").map(PathBuf::from);
        let path = |text: String| expand_tilde(&text, user.clone());
        let home = match (get("HF_HOME"), get("XDG_CACHE_HOME")) {
            (Some(home), _) => Some(path(home)?),
            (None, Some(xdg)) => Some(path(xdg)?.join("huggingface")),
            (None, None) => user.as_ref().map(|user| user.join(".cache/huggingface")),
        };
        let cache_dir = match get("HF_HUB_CACHE") {
            Some(cache) => path(cache)?,
            None => {
                home.as_ref().context("there is no folder for downloaded models: set HF_HOME or HOME")?.join("hub")
            }
        };
        let file = match get("HF_TOKEN_PATH") {
            Some(file) => Some(path(file)?),
            None => home.as_ref().map(|home| home.join("token")),
        };
        let (token, place) = match (get("HF_TOKEN"), file) {
            (Some(token), _) => (Token::new(&token), "HF_TOKEN".to_owned()),
            (None, Some(file)) => (token_in(&file), format!("the file {}", file.display())),
            (None, None) => (Ok(None), String::new()),
        };

        let mut settings = HubSettings::with_cache_dir(std::path::absolute(&cache_dir)?);
        match token {
            Ok(token) => {
                settings.token_place = token.is_some().then_some(place);
                settings.token = token;
            }
            Err(error) => settings.token_fault = Some(format!("{error:#}")),
        }
        let offline = get("HF_HUB_OFFLINE").unwrap_or_default();
        settings.offline = ["1", "true", "yes", "on"].contains(&offline.trim().to_ascii_lowercase().as_str());
        if let Some(endpoint) = get("HF_ENDPOINT") {
            settings.endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        }
        let times =
            [("HF_HUB_ETAG_TIMEOUT", &mut settings.timeout), ("HF_HUB_DOWNLOAD_TIMEOUT", &mut settings.idle)];
        for (name, time) in times {
            if let Some(seconds) = get(name) {
                let whole = seconds.trim().parse().ok().filter(|&whole: &u64| whole > 0);
                *time = whole
                    .map(Duration::from_secs)
                    .with_context(|| format!("{name} is {seconds:?}: write whole seconds, such as 10"))?;
            }
        }
        let url = &settings.endpoint;
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")).unwrap_or_default();
        let is_plain = |b: u8| b.is_ascii_graphic() && !b"@?#\\".contains(&b);
        // The error does not show it, because it may contain a password.
        ensure!(
            !host.is_empty() && !host.starts_with(['/', ':']) && host.bytes().all(is_plain),
            "HF_ENDPOINT is not the address of a hub: write it like https://huggingface.co, and a token into HF_TOKEN"
        );
        Ok(settings)
    }
}

const LONGEST_TOKEN: u64 = 1 << 16;

/// Reads the token in a file. A missing file means that there is no token; one that cannot be read is an error.
fn token_in(file: &Path) -> Result<Option<Token>> {
    match bounded_read::text(file, LONGEST_TOKEN) {
        Ok(text) => Token::new(&text).with_context(|| format!("token file {}", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read the token file {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<HubSettings> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        HubSettings::from_lookup(find)
    }

    #[test]
    fn the_cache_is_where_python_puts_it() {
        for (variables, expected) in [
            (vec![("HOME", "/u")], "/u/.cache/huggingface/hub"),
            (vec![("HOME", "/u"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (vec![("HOME", "/u"), ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/h")], "/h/hub"),
            (vec![("HOME", "/u"), ("HF_HOME", "~/h")], "/u/h/hub"),
            (vec![("HF_HOME", "/h"), ("HF_HUB_CACHE", "/c")], "/c"),
            (vec![("HF_HUB_CACHE", "/c")], "/c"),
            (vec![("HOME", "/u"), ("HF_HOME", "")], "/u/.cache/huggingface/hub"),
        ] {
            assert_eq!(settings(&variables).unwrap().cache_dir, PathBuf::from(expected), "{variables:?}");
        }
        assert!(settings(&[]).is_err());
    }

    #[test]
    fn the_token_has_an_order_of_sources_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let other = folder.path().join("other");
        std::fs::write(folder.path().join("token"), "hf_home\n").unwrap();
        std::fs::write(&other, " hf_path \n").unwrap();
        let (token, path) = (("HF_TOKEN", "hf_variable"), ("HF_TOKEN_PATH", other.to_str().unwrap()));
        let file = |name: &str| format!("the file {}", folder.path().join(name).display());
        for (variables, expected, place) in [
            (vec![("HF_HOME", home), path, token], "hf_variable", "HF_TOKEN".to_owned()),
            (vec![("HF_HOME", home), path], "hf_path", file("other")),
            (vec![("HF_HOME", home)], "hf_home", file("token")),
        ] {
            let settings = settings(&variables).unwrap();
            assert_eq!(settings.token.as_ref().unwrap().secret(), expected);
            assert_eq!(settings.token_place, Some(place));
            assert!(!format!("{settings:?}").contains(expected));
        }
        assert!(settings(&[("HF_HUB_CACHE", "/c")]).unwrap().token.is_none());
        assert_eq!(settings(&[("HOME", "/nowhere")]).unwrap().token_place, None);
        let fault = settings(&[("HOME", "/u"), ("HF_TOKEN", "se cret")]).unwrap().token_fault.unwrap();
        assert!(fault.contains("HF_TOKEN") && !fault.contains("cret"), "{fault}");
    }

    #[test]
    fn offline_accepts_the_spellings_of_huggingface_hub() {
        for (value, expected) in
            [("1", true), ("TRUE", true), ("yes", true), ("On", true), ("0", false), ("", false), ("no", false)]
        {
            let settings = settings(&[("HOME", "/u"), ("HF_HUB_OFFLINE", value)]).unwrap();
            assert_eq!(settings.offline, expected, "{value}");
        }
    }

    #[test]
    fn an_endpoint_is_a_url() {
        let at = |endpoint| settings(&[("HOME", "/u"), ("HF_ENDPOINT", endpoint)]);
        assert_eq!(at("https://mirror.example/hf/").unwrap().endpoint, "https://mirror.example/hf");
        for endpoint in ["mirror.example", "ftp://x", "https://", "http:///x", "https://u:p@x", "https://x y"] {
            assert!(at(endpoint).is_err(), "{endpoint}");
        }
        assert!(settings(&[("HOME", "/u"), ("HF_HUB_ETAG_TIMEOUT", "soon")]).is_err());
    }
}
