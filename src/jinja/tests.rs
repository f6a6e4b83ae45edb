//! Templates against transformers' own rendering (`tests/golden/make/chat_goldens.py`), and hostile ones.

use std::time::{Duration, Instant};

use indexmap::IndexMap;
use serde::Deserialize;

use super::{Dialect, Template, Value, value};

/// Results of transformers 5.2 for some templates.
#[derive(Deserialize)]
struct Goldens {
    messages: Vec<IndexMap<String, String>>,
    tokens: IndexMap<String, String>,
    /// Template, whether the answer is opened, and the text; `None` if transformers refuses the template.
    templates: Vec<(String, bool, Option<String>)>,
}

fn render(source: &str, dialect: Dialect, values: IndexMap<String, Value>) -> Result<String, String> {
    let template = Template::new(source, dialect, |_| ());
    let rendered = template.and_then(|template| template.render(|| value(&values)));
    rendered.map_err(|error| format!("{error:#}"))
}

#[test]
fn chat_templates_render_as_in_transformers() {
    let Goldens { messages, tokens, templates } =
        serde_json::from_str(include_str!("../../tests/golden/chat_templates.json")).unwrap();
    let mut wrong = Vec::new();
    for (source, opens, expected) in &templates {
        let mut values: IndexMap<String, Value> =
            tokens.iter().map(|(name, token)| (name.clone(), value(token))).collect();
        values.insert("messages".into(), value(&messages));
        values.insert("add_generation_prompt".into(), (*opens).into());
        values.extend(["tools", "documents"].map(|name| (name.to_owned(), ().into())));
        let rendered = render(source, Dialect::Chat, values);
        if rendered.clone().ok() != *expected {
            wrong.push(format!("{source}\n  is {rendered:?}\n not {expected:?}"));
        }
    }
    assert!(templates.len() >= 40 && wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Templates that would take for ever, all memory, or the whole stack.
#[test]
fn hostile_templates_end_with_an_error() {
    let doubled = |set: &str| {
        format!("{{% set ns = namespace(a=[1, 2]) %}}{{% for i in range(99) %}}{set}{{% endfor %}}{{{{ ns.a }}}}")
    };
    let nested = |close: &str| ["{% set a = ['x'] %}", &"{% set a = [a, a] %}".repeat(60), close].concat();
    let hostile = [
        "{{ [[0] * 10000] * 10000 }}".to_owned(),
        "{% set a = [[0] * 10000] * 10000 %}{{ a }}".into(),
        "{{ ['x' * 60000] * 100000000 ~ '' }}".into(),
        "{{ (['x' * 60000] * 100000000) | join('y' * 60000) }}".into(),
        "{{ 'x' * 1000000000 * 1000000000 }}".into(),
        "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}".into(),
        "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}".into(),
        "{{ '%1000000000d' | format(1) }}{{ '{:>10000000000}'.format(1) }}".into(),
        "{{ ('x\\n' * 1000000) | indent(1000000) }}".into(),
        "{{ range(1000000000) | list }}{{ range(1000000000) | sum }}".into(),
        "{{ (range(99999) | list) * 99999 == (range(99999) | list) * 99999 }}".into(),
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".into(),
        doubled("{% set ns.a = ns.a + ns.a %}"),
        doubled("{% set ns.a = ns.a * 2 %}"),
        doubled("{% set ns.a = [ns.a, ns.a] %}"),
        doubled("{% set ns.a = {'x': ns.a, 'y': ns.a} %}"),
        doubled("{% set ns.a = ns.a ~ ns.a %}"),
        doubled("{% set ns.a = ns.a | tojson | tojson %}"),
        nested("{{ a }}"),
        nested("{{ a ~ '' }}"),
        nested("{{ a | tojson }}{{ a | string }}{{ a | pprint }}"),
        nested("{{ a == [a[0], a[1]] }}{{ a | sort }}{{ a | unique }}"),
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}".into(),
        "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns ~ '' }}".into(),
        "{% set ns = namespace() %}{% set ns.a = {'b': ns} %}{{ ns | tojson }}".into(),
        "{% set ns = namespace() %}{% set m = namespace(a=ns) %}{% set ns.a = m %}{{ ns == m }}".into(),
        "{% macro f(a) %}{{ f(a + a) }}{% endmacro %}{{ f([1]) }}".into(),
        "{% macro f(a) %}{{ f([a, a]) }}{{ a }}{% endmacro %}{{ f(1) }}".into(),
        "{% set ns = namespace(a=1) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a }}"
            .into(),
        "{% for x in [[[1]]] recursive %}{{ loop([x]) }}{% endfor %}".into(),
        ["{{ ", &"(".repeat(60_000), "1"].concat(),
        ["{{ x", &" + x".repeat(30_000), " }}"].concat(),
    ];
    for source in hostile {
        for dialect in [Dialect::Chat, Dialect::Harness] {
            let began = Instant::now();
            let rendered = render(&source, dialect, IndexMap::new());
            let short: String = source.chars().take(120).collect();
            assert!(rendered.is_err(), "{short}: {:.200}", rendered.unwrap());
            // A second or two where nothing else runs.
            assert!(began.elapsed() < Duration::from_secs(60), "{short} takes {:?}", began.elapsed());
        }
    }
}
