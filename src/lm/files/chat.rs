//! Chat templates: the text that a model trained on conversations expects around a request.
//!
//! Templates are Jinja programs that come with the model. They see the messages, the model's special tokens and nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::source::CheckpointFiles;
use super::tokenizer::{self, MOST_CONFIG as MOST_BYTES, special_token};
use crate::bounded_read;
use crate::jinja::{self, Dialect};

/// Chat template of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatTemplate {
    source: String,
    /// Special tokens that the model has, by the names under which a template reads them.
    tokens: Map<String, Value>,
}

/// Text that a chat template puts around a single request of the user.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatFormat {
    pub prefix: String,
    pub suffix: String,
    /// Whether the template strips white space from both ends of the request.
    pub strip: bool,
    /// Whether the template strips white space from both ends of an answer.
    pub strip_answer: bool,
}

/// Message as a template sees it, with its keys in this order.
#[derive(Serialize)]
struct Message<'a> {
    role: &'a str,
    content: &'a str,
}

/// Largest size of a template in bytes; real ones have some thousand.
const MAX_TEMPLATE: usize = 1 << 17;
/// Names of the special tokens that transformers gives a template.
const TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Placeholder of the request while the template runs. It holds private-use characters, which no real text contains.
const REQUEST: &str = "\u{f8ff}request\u{f8ff}";
/// Placeholder of the beginning of an answer while the template runs.
const ANSWER: &str = "\u{f8ff}answer\u{f8ff}";

impl ChatTemplate {
    /// Reads the template of a tokenizer_config.json, or of the chat_template.jinja beside it, which takes precedence as in
    /// transformers; `None` if the model has none.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or a list of templates of which none is called `default`.
    pub(in crate::lm) fn read(files: &CheckpointFiles) -> Result<Option<ChatTemplate>> {
        let read = |path: &PathBuf| {
            bounded_read::text(path, MOST_BYTES).with_context(|| format!("cannot read {}", path.display()))
        };
        let file = files.chat_template.as_ref().map(read).transpose()?;
        ChatTemplate::parse(&tokenizer::config(files)?, file)
    }

    pub(crate) fn parse(config: &Value, file: Option<String>) -> Result<Option<ChatTemplate>> {
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
        ensure!(
            source.len() <= MAX_TEMPLATE,
            "the chat template has {} bytes; the limit is {MAX_TEMPLATE}",
            source.len()
        );
        let special = |name: &str| Some((name.to_owned(), special_token(config, name)?.into()));
        Ok(Some(ChatTemplate { source, tokens: TOKENS.into_iter().filter_map(special).collect() }))
    }

    /// Source of the template, in Jinja.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// First 16 hex digits of the SHA-256 of the template.
    pub fn digest(&self) -> String {
        Sha256::digest(&self.source).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Finds the text around a single request of the user, up to where the answer begins.
    ///
    /// # Errors
    ///
    /// A template that fails, exceeds its limits, or leaves the request out.
    pub fn format(&self) -> Result<ChatFormat> {
        self.format_after(&[], false)
    }

    /// Finds the text around the user's last request after the messages of `before`, each a role and its text: up to where the
    /// answer begins, or, if its beginning is given (`continues`), up to where that stands. A template that refuses a system
    /// message is rendered without it, as in lm-evaluation-harness.
    ///
    /// # Errors
    ///
    /// Those of [`format`](Self::format).
    pub fn format_after(&self, before: &[(&str, &str)], continues: bool) -> Result<ChatFormat> {
        let [spaced, answer] = [REQUEST, ANSWER].map(|text| format!("\n {text} \n"));
        let own =
            [("user", spaced.as_str())].into_iter().chain(continues.then_some(("assistant", answer.as_str())));
        let messages: Vec<_> = before.iter().copied().chain(own).collect();
        let mut rendered = self.rendered(&messages, !continues)?;
        let strip_answer = !rendered.contains(&answer);
        if continues {
            let at = rendered.rfind(if strip_answer { ANSWER } else { &answer });
            rendered.truncate(at.context("the chat template does not show the beginning of an answer")?);
        }
        let (request, strip) = if rendered.contains(&spaced) { (&*spaced, false) } else { (REQUEST, true) };
        let (prefix, suffix) = rendered
            .split_once(request)
            .filter(|(_, suffix)| !suffix.contains(REQUEST))
            .context("the chat template does not show the user's message once; use `chat_template: false`")?;
        Ok(ChatFormat { prefix: prefix.to_owned(), suffix: suffix.to_owned(), strip, strip_answer })
    }

    /// Renders messages, without the system message if the template refuses it.
    fn rendered(&self, messages: &[(&str, &str)], opens_answer: bool) -> Result<String> {
        let rendered = self.render(messages, opens_answer).or_else(|error| match messages.split_first() {
            Some((("system", _), others)) => self.render(others, opens_answer),
            _ => Err(error),
        });
        rendered.map_err(|error| anyhow!("the model's chat template fails: {error:#}; use `chat_template: false`"))
    }

    /// Checks that a request stands between the two texts of its format: a template may decide by the request.
    ///
    /// # Errors
    ///
    /// A template that makes another text of this request.
    pub fn check(&self, format: &ChatFormat, before: &[(&str, &str)], request: &str) -> Result<()> {
        let messages: Vec<_> = before.iter().copied().chain([("user", request)]).collect();
        let shown = if format.strip { request.trim() } else { request };
        ensure!(
            self.rendered(&messages, true)? == [format.prefix.as_str(), shown, &format.suffix].concat(),
            "the chat template makes another text of this request than of others, which is not supported; use \
             `chat_template: false`"
        );
        Ok(())
    }

    /// Renders a conversation of messages, each a role and its text; with `opens_answer` up to where the next answer begins.
    ///
    /// # Errors
    ///
    /// A template that fails or exceeds its limits.
    pub fn render(&self, messages: &[(&str, &str)], opens_answer: bool) -> Result<String> {
        let messages: Vec<_> = messages.iter().map(|&(role, content)| Message { role, content }).collect();
        let tokens = self.tokens.iter().map(|(name, token)| (name.as_str(), jinja::value(token)));
        let mut values: BTreeMap<&str, jinja::Value> = tokens.collect();
        values.insert("messages", jinja::value(&messages));
        values.insert("add_generation_prompt", opens_answer.into());
        // They are there, and empty, where there are none.
        values.extend(["tools", "documents"].map(|name| (name, ().into())));
        jinja::Template::new(&self.source, Dialect::Chat, |_| ())?.render(|| jinja::value(&values))
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

    /// Compares with transformers 4.36 on templates of these families.
    #[test]
    fn templates_of_known_families() {
        let zephyr = "{% for message in messages %}\n{% if message['role'] == 'user' %}\n\
            {{ '<|user|>\n' + message['content'] + eos_token }}\n{% endif %}\n\
            {% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}";
        let format = template(zephyr).format().unwrap();
        assert_eq!((&*format.prefix, &*format.suffix), ("<|user|>\n", "</s>\n<|assistant|>\n"));
        assert!(!format.strip);
        let llama2 = "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\
            {{ raise_exception('roles must alternate') }}{% endif %}\
            {{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}{% endfor %}";
        let format = template(llama2).format().unwrap();
        assert_eq!((&*format.prefix, &*format.suffix, format.strip), ("<s>[INST] ", " [/INST]", true));
    }

    /// A published template of Nemotron decides by the request whether to think.
    #[test]
    fn a_request_by_which_the_template_decides_is_refused() {
        let source = "{% for message in messages %}[{{ message.content | trim }}]{% endfor %}\
            {% if '/no_think' in messages[-1].content %}<think></think>{% endif %}";
        let template = template(source);
        let format = template.format().unwrap();
        template.check(&format, &[("system", "b")], " a ").unwrap_err();
        template.check(&format, &[], " a ").unwrap();
        let error = template.check(&format, &[], "a /no_think").unwrap_err().to_string();
        assert!(error.contains("chat_template: false"), "{error}");
    }

    #[test]
    fn a_conversation_shows_every_message() {
        let source = "{% for message in messages %}[{{ message.role }}]{{ message['content'] | trim }}{% endfor %}\
            {% if add_generation_prompt %}[assistant]{% endif %}";
        let messages = [("system", "be brief"), ("user", " a "), ("assistant", "b")];
        let template = template(source);
        assert_eq!(template.render(&messages[..2], true).unwrap(), "[system]be brief[user]a[assistant]");
        assert_eq!(template.render(&messages, false).unwrap(), "[system]be brief[user]a[assistant]b");
        assert_eq!(template.render(&[], true).unwrap(), "[assistant]");
    }

    #[test]
    fn the_template_file_takes_precedence_and_lists_need_a_default() {
        let config = json!({"chat_template": [{"name": "tools", "template": "t"},
            {"name": "default", "template": "A{{ messages[0].content }}"}]});
        let listed = ChatTemplate::parse(&config, None).unwrap().unwrap();
        assert_eq!(listed.format().unwrap().prefix, "A");
        let beside = ChatTemplate::parse(&config, Some("B{{ messages[0].content }}".into())).unwrap().unwrap();
        assert_eq!(beside.format().unwrap().prefix, "B");
        assert_ne!(listed.digest(), beside.digest());
        assert_eq!(ChatTemplate::parse(&json!({}), None).unwrap(), None);
        assert!(ChatTemplate::parse(&json!({"chat_template": [{"name": "x", "template": "y"}]}), None).is_err());
    }

    #[test]
    fn templates_that_fail_are_errors_with_a_hint() {
        for source in [
            "{{ raise_exception('no user') }}",
            "{% for",
            "nothing",
            "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}",
            "{{ messages[0].content }}{{ ('x' * 20000) * 20000 }}",
            "{% include '/etc/passwd' %}",
            "{{ messages[0].content }}{{ messages[0].content }}",
        ] {
            let error = format!("{:#}", template(source).format().unwrap_err());
            assert!(error.contains("chat_template: false"), "{source}: {error}");
        }
    }

    /// Expressions that would overflow an ordinary stack, in the parser, in the compiler, or when the tree is dropped. (Templates
    /// eight times as long fit too, but the compiler's time grows with the square of the depth.)
    #[test]
    fn deep_expressions_do_not_overflow_the_stack() {
        for (before, step, after) in [
            ("{{ x", "-1", " }}"),
            ("{{ ", "-", "x }}"),
            ("{{ x", "|e", " }}"),
            ("{{ x", ".x", " }}"),
            ("{% for ", "(", "x in y %}{% endfor %}"),
            ("{% if x %}", "{% elif x %}", "{% endif %}"),
        ] {
            let source = [before, &step.repeat(MAX_TEMPLATE / 8 / step.len()), after].concat();
            assert!(template(&source).format().is_err(), "{step}");
        }
    }
}
