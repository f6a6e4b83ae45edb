//! How the hub is reached: the ecosystem's environment variables, read once into a value.
//!
//! The names and defaults are those of the `huggingface_hub` documentation, so a machine set up for Python works here.
//! Nothing else in the crate reads these variables. The token has no `Debug` and no `Display` that would show it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::bounded_read;

/// An access token. It goes into one header and nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Whitespace around it is dropped, for it often comes from a file; nothing left is no token.
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

/// Where a token came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    Variable(&'static str),
    File(PathBuf),
}

/// How and whether the hub is asked.
#[derive(Clone, Debug)]
pub struct HubSettings {
    /// The folder of `models--owner--name` and `datasets--owner--name` (`HF_HUB_CACHE`).
    pub cache_dir: PathBuf,
    /// Without a slash at the end (`HF_ENDPOINT`).
    pub endpoint: String,
    pub token: Option<Token>,
    /// Where the token was found; `None` where there is none, or it came with the call.
    pub token_place: Option<TokenPlace>,
    /// Only the cache is used (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// How long the hub may take to say what a repository holds (`HF_HUB_ETAG_TIMEOUT`).
    pub timeout: Duration,
    /// How often a broken transfer is taken up again before it is an error.
    pub attempts: u32,
}

/// Everything [`HubSettings::from_env`] reads.
const VARIABLES: [&str; 13] = [
    "HF_HOME",
    "XDG_CACHE_HOME",
    "HOME",
    "USERPROFILE",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "HF_HUB_ETAG_TIMEOUT",
];

impl HubSettings {
    /// The public hub, no token, this cache.
    pub fn with_cache_dir(cache_dir: impl Into<PathBuf>) -> Self {
        HubSettings {
            cache_dir: cache_dir.into(),
            endpoint: "https://huggingface.co".to_owned(),
            token: None,
            token_place: None,
            offline: false,
            timeout: Duration::from_secs(10),
            attempts: 4,
        }
    }

    /// What the environment says.
    pub fn from_env() -> Result<Self> {
        for name in VARIABLES {
            if let Err(std::env::VarError::NotUnicode(_)) = std::env::var(name) {
                bail!("the environment variable {name} is not valid UTF-8");
            }
        }
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// As [`HubSettings::from_env`], from any table of variables. An empty variable counts as unset.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let get = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let user = get("HOME").or_else(|| get("USERPROFILE")).map(PathBuf::from);
        let path = |text: String| match text.strip_prefix("~/") {
            Some(rest) => {
                user.as_ref().map(|user| user.join(rest)).context("HOME is not set, so `~` means nothing")
            }
            None => Ok(PathBuf::from(text)),
        };

        let home = match (get("HF_HOME"), get("XDG_CACHE_HOME"), &user) {
            (Some(home), _, _) => Some(path(home)?),
            (None, Some(xdg), _) => Some(path(xdg)?.join("huggingface")),
            (None, None, Some(user)) => Some(user.join(".cache/huggingface")),
            (None, None, None) => None,
        };
        let cache_dir = match get("HF_HUB_CACHE").or_else(|| get("HUGGINGFACE_HUB_CACHE")) {
            Some(cache) => path(cache)?,
            None => home.as_ref().context("no place for downloaded models: set HF_HOME or HOME")?.join("hub"),
        };
        let variable = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find(|name| get(name).is_some());
        let file = match (get("HF_TOKEN_PATH"), &home) {
            (Some(file), _) => Some(path(file)?),
            (None, Some(home)) => Some(home.join("token")),
            (None, None) => None,
        };
        let (token, place) = match (variable, file) {
            (Some(name), _) => (Token::new(&get(name).unwrap_or_default())?, Some(TokenPlace::Variable(name))),
            (None, Some(file)) => (token_in(&file)?, Some(TokenPlace::File(file))),
            (None, None) => (None, None),
        };

        let mut settings = HubSettings::with_cache_dir(std::path::absolute(&cache_dir)?);
        settings.token_place = place.filter(|_| token.is_some());
        settings.token = token;
        settings.offline =
            get("HF_HUB_OFFLINE").or_else(|| get("TRANSFORMERS_OFFLINE")).is_some_and(|v| is_true(&v));
        if let Some(endpoint) = get("HF_ENDPOINT") {
            settings.endpoint = endpoint.trim().trim_end_matches('/').to_owned();
        }
        if let Some(seconds) = get("HF_HUB_ETAG_TIMEOUT") {
            settings.timeout = seconds
                .trim()
                .parse()
                .ok()
                .filter(|&seconds: &u64| seconds > 0)
                .map(Duration::from_secs)
                .with_context(|| format!("HF_HUB_ETAG_TIMEOUT is {seconds:?}: write whole seconds, such as 10"))?;
        }
        settings.check()?;
        Ok(settings)
    }

    /// A text without the token, which whoever is asked may send back: in an address to go to, or as what went wrong.
    pub(super) fn redact(&self, text: &str) -> String {
        self.token.as_ref().map_or_else(|| text.to_owned(), |token| text.replace(token.secret(), "[token]"))
    }

    /// The hub's client panics on an endpoint that is no URL, so this comes first.
    pub(super) fn check(&self) -> Result<()> {
        let rest = self.endpoint.strip_prefix("https://").or_else(|| self.endpoint.strip_prefix("http://"));
        let sound = rest.is_some_and(|rest| {
            !rest.is_empty() && !rest.starts_with(['/', ':']) && rest.bytes().all(|b| b.is_ascii_graphic())
        });
        // Not shown in the error: someone may have put a password in.
        ensure!(
            sound && !self.endpoint.contains(['@', '?', '#', '\\']),
            "HF_ENDPOINT is no address of a hub: write it like https://huggingface.co, and a token into HF_TOKEN"
        );
        Ok(())
    }
}

fn is_true(value: &str) -> bool {
    matches!(value.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

/// A token has some dozens of bytes.
const LONGEST_TOKEN: u64 = 1 << 16;

/// A token file that is not there is no token; one that cannot be read is an error, or a gated model would seem denied.
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
    fn the_token_comes_from_the_nearest_place_and_is_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let other = folder.path().join("other");
        std::fs::write(folder.path().join("token"), "hf_home\n").unwrap();
        std::fs::write(&other, " hf_path \n").unwrap();
        let (token, path) = (("HF_TOKEN", "hf_variable"), ("HF_TOKEN_PATH", other.to_str().unwrap()));
        for (variables, expected) in [
            (vec![("HF_HOME", home), path, token], "hf_variable"),
            (vec![("HF_HOME", home), path], "hf_path"),
            (vec![("HF_HOME", home)], "hf_home"),
        ] {
            let settings = settings(&variables).unwrap();
            assert_eq!(settings.token.as_ref().unwrap().secret(), expected);
            let place = match expected {
                "hf_variable" => TokenPlace::Variable("HF_TOKEN"),
                "hf_path" => TokenPlace::File(other.clone()),
                _ => TokenPlace::File(folder.path().join("token")),
            };
            assert_eq!(settings.token_place, Some(place));
            assert!(!format!("{settings:?}").contains(expected));
        }
        assert!(settings(&[("HF_HUB_CACHE", "/c")]).unwrap().token.is_none());
        assert_eq!(settings(&[("HOME", "/nowhere")]).unwrap().token_place, None);
        let error = settings(&[("HOME", "/u"), ("HF_TOKEN", "se cret")]).unwrap_err();
        assert!(!format!("{error:#}").contains("cret"));
    }

    #[test]
    fn offline_has_four_spellings() {
        for (value, expected) in
            [("1", true), ("TRUE", true), ("yes", true), ("On", true), ("0", false), ("", false), ("no", false)]
        {
            assert_eq!(
                settings(&[("HOME", "/u"), ("HF_HUB_OFFLINE", value)]).unwrap().offline,
                expected,
                "{value}"
            );
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
