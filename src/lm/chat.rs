//! Chat templates: what a model that was trained on conversations wants around a request.
//!
//! Templates come with the model and are programs in Jinja. They see the messages and nothing else, read no file, and
//! are stopped when they run for too long.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use minijinja::context;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value as Given;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::jinja;
use super::tokenizer::MOST_CONFIG as MOST_BYTES;
use crate::bounded_read;

/// A model's template for conversations.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatTemplate {
    source: String,
    bos: String,
    eos: String,
}

/// What stands before and after a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub before: String,
    pub after: String,
    /// Whether the request is to be stripped of white space at both ends.
    pub trims: bool,
}

/// Bytes of a template: real ones have some thousand.
const LONGEST: usize = 1 << 17;
/// Stands for the request while the template runs. No text holds a private character by chance.
const REQUEST: &str = "\u{f8ff}request\u{f8ff}";

impl ChatTemplate {
    /// The template of a tokenizer_config.json, or of the chat_template.jinja beside it, which wins as in transformers;
    /// `None` if the model has none.
    ///
    /// # Errors
    /// A file that cannot be read, or templates of which none is called `default`.
    pub(super) fn read(config: Option<&Path>, file: Option<&Path>) -> Result<Option<ChatTemplate>> {
        let read = |path: &Path| {
            bounded_read::text(path, MOST_BYTES).with_context(|| format!("cannot read {}", path.display()))
        };
        let config = match config {
            None => Value::Null,
            Some(path) => serde_json::from_str(&read(path)?)
                .with_context(|| format!("{} is no valid JSON", path.display()))?,
        };
        let file = file.map(read).transpose()?;
        ChatTemplate::parse(&config, file)
    }

    fn parse(config: &Value, file: Option<String>) -> Result<Option<ChatTemplate>> {
        let source = match (file, &config["chat_template"]) {
            (Some(file), _) => file,
            (None, Value::String(source)) => source.clone(),
            (None, Value::Array(named)) => {
                let default = named.iter().find(|template| template["name"] == "default");
                let source = default.and_then(|template| template["template"].as_str());
                source.context("tokenizer_config.json has chat templates, but none called `default`")?.to_owned()
            }
            _ => return Ok(None),
        };
        ensure!(source.len() <= LONGEST, "the chat template has {} bytes; {LONGEST} is the most", source.len());
        let special = |name: &str| match &config[name] {
            Value::String(token) => token.clone(),
            token => token["content"].as_str().unwrap_or_default().to_owned(),
        };
        Ok(Some(ChatTemplate { source, bos: special("bos_token"), eos: special("eos_token") }))
    }

    /// 16 hex digits of the SHA-256 of the template.
    pub fn digest(&self) -> String {
        Sha256::digest(&self.source).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// What the template puts around a single request of the user, and where the answer begins.
    ///
    /// # Errors
    /// A template that fails, runs too long, or leaves the request out.
    pub fn frame(&self) -> Result<Frame> {
        let spaced = format!("\n {REQUEST} \n");
        let rendered = self.render(&spaced)?;
        let (request, trims) = if rendered.contains(&spaced) { (&*spaced, false) } else { (REQUEST, true) };
        let (before, after) = rendered
            .split_once(request)
            .filter(|(_, after)| !after.contains(REQUEST))
            .context("the chat template does not show the user's message once; use `chat_template: false`")?;
        Ok(Frame { before: before.to_owned(), after: after.to_owned(), trims })
    }

    fn render(&self, request: &str) -> Result<String> {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        let context = context! {
            messages => [context! { role => "user", content => request }],
            add_generation_prompt => true,
            bos_token => &self.bos,
            eos_token => &self.eos,
            // Dates would make two runs differ, so every day is this one.
            strftime_now => Given::from_function(|_: String| "26 Jul 2024"),
        };
        let rendered = jinja::render(&self.source, context, syntax);
        rendered.map_err(|error| anyhow!("the model's chat template fails: {error}; use `chat_template: false`"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(source: &str) -> ChatTemplate {
        let config = json!({"chat_template": source, "bos_token": "<s>", "eos_token": {"content": "</s>"}});
        ChatTemplate::parse(&config, None).unwrap().unwrap()
    }

    /// As transformers 4.36 renders the templates of these families.
    #[test]
    fn frames_of_known_families() {
        let zephyr = "{% for message in messages %}\n{% if message['role'] == 'user' %}\n\
            {{ '<|user|>\n' + message['content'] + eos_token }}\n{% endif %}\n\
            {% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}";
        let frame = template(zephyr).frame().unwrap();
        assert_eq!((&*frame.before, &*frame.after), ("<|user|>\n", "</s>\n<|assistant|>\n"));
        assert!(!frame.trims);
        let llama2 = "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
            {{ raise_exception('roles must alternate') }}{% endif %}\
            {{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}{% endfor %}";
        let frame = template(llama2).frame().unwrap();
        assert_eq!((&*frame.before, &*frame.after, frame.trims), ("<s>[INST] ", " [/INST]", true));
    }

    #[test]
    fn the_file_beside_wins_and_lists_have_a_default() {
        let config = json!({"chat_template": [{"name": "tools", "template": "t"},
            {"name": "default", "template": "A{{ messages[0].content }}"}]});
        let listed = ChatTemplate::parse(&config, None).unwrap().unwrap();
        assert_eq!(listed.frame().unwrap().before, "A");
        let beside = ChatTemplate::parse(&config, Some("B{{ messages[0].content }}".into())).unwrap().unwrap();
        assert_eq!(beside.frame().unwrap().before, "B");
        assert_ne!(listed.digest(), beside.digest());
        assert_eq!(ChatTemplate::parse(&json!({}), None).unwrap(), None);
        assert!(ChatTemplate::parse(&json!({"chat_template": [{"name": "x", "template": "y"}]}), None).is_err());
    }

    #[test]
    fn templates_that_fail_say_so() {
        for source in [
            "{{ raise_exception('no user') }}",
            "{% for",
            "nothing",
            "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}",
            "{% include '/etc/passwd' %}",
            "{{ messages[0].content }}{{ messages[0].content }}",
        ] {
            let error = format!("{:#}", template(source).frame().unwrap_err());
            assert!(error.contains("chat_template: false"), "{source}: {error}");
        }
    }
}
