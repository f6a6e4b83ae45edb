//! Templates of strangers, run with so many steps and so much memory.
//!
//! Knows Jinja and nothing of conversations. minijinja counts steps, but one step may double a text, and forty of them fill any
//! memory. So every step that makes something new out of values is measured here before it is taken: the operators are
//! exchanged in the compiled template for functions that look at their operands, filters and methods likewise, and those that
//! nobody needs for a conversation are not there. No template reads a file, for there is no loader.
//!
//! Compiling calls itself as deep as an expression is long, and works out what constants come to. So the words of a template
//! are looked at before it is compiled.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::machinery::{
    CompiledTemplate, Instruction, Instructions, TemplateConfig, Token, eval, make_string_output, tokenize,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, escape_formatter, functions};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Steps a template may take: a real one takes some hundred.
const STEPS: u64 = 50_000;
/// Bytes of text that steps may write as it stands in the template, all together.
const MOST_RAW: u64 = 1 << 28;
/// Weight of the operands of one step: bytes of its texts, and so many for each value.
const HEAVIEST: u64 = 1 << 18;
const EACH: u64 = 32;
/// Weight of everything that is made on the way.
const MOST_WORK: u64 = 1 << 28;
/// Lists in lists; conversations have three.
const DEEPEST: usize = 24;
/// Namespaces a template may make, as they can hold each other in a chain of any length.
const MOST_NAMESPACES: u64 = 256;

/// Names, operators and brackets of one tag; real ones have some tens. Each may be one more level of the compiler's stack,
/// which items of a list are not.
const MOST_LEVELS: usize = 500;
/// Tags `elif`, each of which is a level of that stack too.
const MOST_ELIFS: usize = 100;

/// Filters that make no more than some times of what they get. `replace`, `join`, `indent` and `map` are looked at closer.
const FILTERS: [&str; 38] = [
    "abs",
    "attr",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "int",
    "items",
    "last",
    "length",
    "list",
    "lower",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
    "lines",
    "split",
    "urlencode",
];
const NO_FILTERS: [&str; 7] = ["batch", "slice", "groupby", "chain", "zip", "pprint", "format"];
const NO_FUNCTIONS: [&str; 1] = ["debug"];

/// The operators that are exchanged: the function's name, which no template can spell, and the expression it stands for.
const PLUS: &str = "+";
const TIMES: &str = "*";
const JOINED: &str = "~";
const LIST: &str = "[]";
const RECORD: &str = "{}";

/// The language as it is, for steps that have been measured.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut plain = Environment::new();
    plain.set_unknown_method_callback(unknown_method_callback);
    plain
});

/// Renders a template.
///
/// # Errors
/// A template that is none, fails, or needs too many steps or too much memory.
pub(super) fn render(source: &str, context: Value, syntax: SyntaxConfig) -> Result<String, Error> {
    look_at_words(source, &syntax)?;
    let config = TemplateConfig { syntax_config: syntax, default_auto_escape: Arc::new(|_| AutoEscape::None) };
    let mut template = CompiledTemplate::new("chat_template", source, &config)?;
    let longest = exchange(&mut template.instructions);
    let longest = template.blocks.values_mut().map(exchange).fold(longest, usize::max);

    let mut environment = measured();
    environment.set_fuel(Some(STEPS.min(MOST_RAW / longest.max(1) as u64)));
    let mut text = String::new();
    let CompiledTemplate { instructions, blocks, .. } = &template;
    eval(&environment, instructions, context, blocks, &mut make_string_output(&mut text), AutoEscape::None)?;
    Ok(text)
}

/// Refuses what would overflow the compiler's stack, or what constants multiply to more than a step may make.
fn look_at_words(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let mut elifs = 0;
    let mut tag = Tag::default();
    for word in tokenize(source, false, syntax.clone()) {
        match word?.0 {
            Token::VariableStart | Token::BlockStart => tag = Tag::default(),
            Token::TemplateData(_) | Token::VariableEnd | Token::BlockEnd => continue,
            word => {
                elifs += usize::from(tag.levels == 0 && matches!(word, Token::Ident("elif")));
                tag.add(&word);
            }
        }
        if tag.levels > MOST_LEVELS || elifs > MOST_ELIFS {
            return Err(too_much("has too long an expression, or too many cases"));
        }
        if tag.folded() > HEAVIEST as f64 {
            return Err(too_much("multiplies constants to too much"));
        }
    }
    Ok(())
}

/// What is known of a tag before it is compiled.
struct Tag {
    /// Words that may be levels of a stack.
    levels: usize,
    /// Weight of its constants.
    constants: f64,
    /// Its numbers multiplied, none as less than 2: so sums are no larger either.
    product: f64,
    multiplies: bool,
}

impl Default for Tag {
    fn default() -> Tag {
        Tag { levels: 0, constants: 0.0, product: 1.0, multiplies: false }
    }
}

impl Tag {
    fn add(&mut self, word: &Token<'_>) {
        let item = matches!(
            word,
            Token::Str(_) | Token::String(_) | Token::Int(_) | Token::Float(_) | Token::Comma | Token::Colon
        );
        self.levels += usize::from(!item);
        match word {
            Token::Str(text) => self.constants += (EACH as usize + text.len()) as f64,
            Token::String(text) => self.constants += (EACH as usize + text.len()) as f64,
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => self.constants += EACH as f64,
            Token::Int(number) => self.product *= (*number as f64).max(2.0),
            Token::Int128(number) => self.product *= (**number as f64).max(2.0),
            // What is divided by a small one is large.
            Token::Float(number) => self.product *= number.max(number.recip()).max(2.0),
            Token::Mul => self.multiplies = true,
            Token::Pow => self.product = f64::INFINITY,
            _ => {}
        }
    }

    /// The most that an expression of constants can weigh.
    fn folded(&self) -> f64 {
        if self.multiplies { self.constants * self.product } else { 0.0 }
    }
}

/// Exchanges the operators, each for a call that takes as many values from the stack and leaves as many. Returns the length
/// of the longest text that is written as it stands.
fn exchange(instructions: &mut Instructions) -> usize {
    let mut longest = 0;
    for at in 0.. {
        let Some(instruction) = instructions.get_mut(at) else { break };
        *instruction = match &*instruction {
            Instruction::Add => Instruction::CallFunction(PLUS, Some(2)),
            Instruction::Mul => Instruction::CallFunction(TIMES, Some(2)),
            Instruction::StringConcat => Instruction::CallFunction(JOINED, Some(2)),
            Instruction::BuildList(count) => Instruction::CallFunction(LIST, count.map(|count| count as _)),
            // Tuples differ from lists in what is shown of them only.
            Instruction::BuildTuple(count) => Instruction::CallFunction(LIST, count.map(|count| count as _)),
            Instruction::BuildMap(pairs) => Instruction::CallFunction(RECORD, Some((2 * pairs) as _)),
            Instruction::EmitRaw(text) => {
                longest = longest.max(text.len());
                continue;
            }
            _ => continue,
        };
    }
    longest
}

/// The language, measured.
fn measured() -> Environment<'static> {
    let scale = Scale::default();
    let mut environment = Environment::new();
    NO_FILTERS.iter().for_each(|name| environment.remove_filter(name));
    NO_FUNCTIONS.iter().for_each(|name| environment.remove_global(name));

    for (name, expression) in [(PLUS, "a + b"), (JOINED, "a ~ b")] {
        let scale = scale.clone();
        environment.add_function(name, move |a: Value, b: Value| {
            scale.take(&[a.clone(), b.clone()])?;
            operate(expression, a, b)
        });
    }
    let own = scale.clone();
    environment.add_function(TIMES, move |a: Value, b: Value| {
        own.take(&[a.clone(), b.clone()])?;
        for (repeated, times) in [(&a, &b), (&b, &a)] {
            if !repeated.is_number() {
                own.bytes(weight(repeated)?.saturating_mul(times.as_i64().map_or(0, i64::unsigned_abs)))?;
            }
        }
        operate("a * b", a, b)
    });
    let own = scale.clone();
    environment.add_function(LIST, move |Rest(values): Rest<Value>| {
        own.take(&values)?;
        Ok::<_, Error>(Value::from(values))
    });
    let own = scale.clone();
    environment.add_function(RECORD, move |Rest(values): Rest<Value>| {
        own.take(&values)?;
        let pairs = values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        Ok::<_, Error>(Value::from_pairs(pairs))
    });

    for name in FILTERS {
        let scale = scale.clone();
        environment.add_filter(name, move |values: Rest<ValueOrKwargs>| {
            let values = values.into_values();
            scale.take(&values)?;
            scale.made(PLAIN.empty_state().apply_filter(name, &values)?)
        });
    }
    for name in ["replace", "join", "indent"] {
        let scale = scale.clone();
        environment.add_filter(name, move |values: Rest<ValueOrKwargs>| {
            let values = values.into_values();
            scale.take(&values)?;
            scale.bytes(grown(name, &values))?;
            scale.made(PLAIN.empty_state().apply_filter(name, &values)?)
        });
    }
    let own = scale.clone();
    environment.add_filter("map", move |state: &mut State, values: Rest<ValueOrKwargs>| {
        let values = values.into_values();
        own.take(&values)?;
        let Some(filter) = values.get(1).and_then(Value::as_str) else {
            return own.made(PLAIN.empty_state().apply_filter("map", &values)?);
        };
        let items = values[0].try_iter()?;
        let mapped: Result<Vec<Value>, Error> =
            items.map(|item| state.apply_filter(filter, &[&[item], &values[2..]].concat())).collect();
        own.made(Value::from(mapped?))
    });

    let own = scale.clone();
    environment.set_unknown_method_callback(move |state, value, method, arguments| {
        if method == "format" {
            return Err(Error::from(ErrorKind::UnknownMethod));
        }
        let values = [std::slice::from_ref(value), arguments].concat();
        own.take(&values)?;
        own.bytes(grown(method, &values))?;
        own.made(unknown_method_callback(state, value, method, arguments)?)
    });
    let own = scale.clone();
    environment.set_formatter(move |out, state, value| {
        own.take(std::slice::from_ref(value))?;
        escape_formatter(out, state, value)
    });

    let own = scale.clone();
    let made = AtomicU64::new(0);
    environment.add_function("namespace", move |values: Option<ValueOrKwargs>| {
        if let Some(values) = &values {
            own.take(std::slice::from_ref(&**values))?;
        }
        if made.fetch_add(1, Ordering::Relaxed) == MOST_NAMESPACES {
            return Err(too_much("makes too many namespaces"));
        }
        functions::namespace(values)
    });
    environment.add_function("dict", move |value: Option<Value>, options: Kwargs| {
        scale.take(value.as_slice())?;
        for name in options.args() {
            scale.take(&[options.peek(name)?])?;
        }
        functions::dict(value, options)
    });
    environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment
}

fn operate(expression: &str, a: Value, b: Value) -> Result<Value, Error> {
    PLAIN.compile_expression(expression)?.eval(minijinja::context! { a, b })
}

/// Bytes that a filter or method of a text makes beyond what it gets.
fn grown(name: &str, values: &[Value]) -> u64 {
    let text = |at: usize| values.get(at).and_then(Value::as_str).unwrap_or_default();
    let length = |at: usize| text(at).len() as u64;
    match name {
        "replace" => text(0).matches(text(1)).count() as u64 * length(2),
        // The filter has the text between as its argument, the method as its receiver.
        "join" => {
            values.iter().take(2).map(|value| value.len().unwrap_or(0) as u64).sum::<u64>()
                * length(0).max(length(1))
        }
        "indent" => {
            let width = |value: &Value| value.as_i64().map_or(4, i64::unsigned_abs);
            text(0).lines().count() as u64 * values.iter().skip(1).map(width).max().unwrap_or(4)
        }
        _ => 0,
    }
}

/// What the steps of one run may still make.
#[derive(Clone)]
struct Scale(Arc<AtomicU64>);

impl Default for Scale {
    fn default() -> Scale {
        Scale(Arc::new(AtomicU64::new(MOST_WORK)))
    }
}

impl Scale {
    /// Weighs the operands of a step.
    fn take(&self, values: &[Value]) -> Result<(), Error> {
        let mut sum = 0;
        for value in values {
            weigh(value, DEEPEST, &mut sum)?;
        }
        self.bytes(sum)
    }

    /// Weighs what a step made.
    fn made(&self, value: Value) -> Result<Value, Error> {
        self.take(std::slice::from_ref(&value))?;
        Ok(value)
    }

    fn bytes(&self, weight: u64) -> Result<(), Error> {
        if weight > HEAVIEST {
            return Err(too_much("makes too much in one step"));
        }
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(weight));
        left.map(|_| ()).map_err(|_| too_much("makes too much"))
    }
}

fn weight(value: &Value) -> Result<u64, Error> {
    let mut sum = 0;
    weigh(value, DEEPEST, &mut sum)?;
    Ok(sum)
}

/// Adds the weight of a value and of all in it, each time it is in it: so long it takes to show or compare it.
fn weigh(value: &Value, depth: usize, sum: &mut u64) -> Result<(), Error> {
    *sum += EACH + value.as_str().map_or(0, |text| text.len() as u64);
    if *sum > HEAVIEST {
        return Err(too_much("makes too much in one step"));
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    let Some(depth) = depth.checked_sub(1) else { return Err(too_much("nests values too deep")) };
    for item in value.try_iter()? {
        weigh(&item, depth, sum)?;
        if value.kind() == ValueKind::Map {
            weigh(&value.get_item(&item)?, depth, sum)?;
        }
    }
    Ok(())
}

fn too_much(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("the template {what}"))
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    fn rendered(source: &str) -> Result<String, String> {
        let context = context! { messages => [context! { role => "user", content => "Hi" }], none => () };
        render(source, context, SyntaxConfig::default()).map_err(|error| error.to_string())
    }

    /// As Jinja2 3.1 renders them.
    #[test]
    fn the_language_is_what_it_was() {
        for (source, expected) in [
            (
                "{{ 1 + 2 * 3 }}|{{ 0.5 + 1 }}|{{ 'a' + 'b' }}|{{ 'a' ~ 1 ~ none }}|{{ 'ab' * 3 }}|{{ 2 * 'a' }}",
                "7|1.5|ab|a1None|ababab|aa",
            ),
            (
                "{{ ([1] + [2, 3])|length }}|{{ ([1] * 3)|join(',') }}|{{ [1, [2]][1][0] }}|{{ (1, 2)[1] }}",
                "3|1,1,1|2|2",
            ),
            ("{% set m = {'a': 1 + 1, 'b': [2]} %}{{ m }}|{{ m.b[0] }}", "{'a': 2, 'b': [2]}|2"),
            ("{{ [3, 1]|sort(reverse=true)|join }}|{{ [1]|tojson(indent=2) }}", "31|[\n  1\n]"),
            (
                "{{ messages|map(attribute='x', default='y')|list }}|{{ messages|join(attribute='role') }}",
                "['y']|user",
            ),
            ("{{ {'a': 1, 'b': [2]}.b[0] }}|{{ {'a': 1}|tojson }}|{{ dict(a=1).a }}", r#"2|{"a": 1}|1"#),
            (
                "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
                "3",
            ),
            (
                "{{ 'a,b'.split(',')|join('-') }}|{{ ' a '.strip() }}|{{ 'aXbX'|replace('X', '--') }}",
                "a-b|a|a--b--",
            ),
            ("{{ messages|map(attribute='content')|join }}|{{ ['a', 'b']|map('upper')|join(' ') }}", "Hi|A B"),
            (
                "{{ 'a\nb'|indent(2) }}|{{ messages|selectattr('role', 'equalto', 'user')|list|length }}",
                "a\n  b|1",
            ),
            ("{% macro f(x, y=1) %}[{{ x }}{{ y }}]{% endmacro %}{{ f('a') }}{{ f('b', y=2) }}", "[a1][b2]"),
            ("{% set x %}a{{ 1 }}{% endset %}{{ x ~ x }}|{% if 'a' in x and x is string %}y{% endif %}", "a1a1|y"),
        ] {
            assert_eq!(rendered(source).as_deref(), Ok(expected), "{source}");
        }
    }

    /// Each would overflow the stack of the parser, the compiler, or of what drops its tree.
    #[test]
    fn expressions_without_end_are_refused_before_they_are_compiled() {
        for (before, step, after) in [
            ("{{ 1", "-1", " }}"),
            ("{{ x", " ~ x", " }}"),
            ("{{ ", "-", "x }}"),
            ("{{ ", "not ", "x }}"),
            ("{{ x", " if x", " }}"),
            ("{{ x", "|e", " }}"),
            ("{{ x", " is x", " }}"),
            ("{{ x", ".x", " }}"),
            ("{{ x", "[0]", " }}"),
            ("{{ x", "()", " }}"),
            ("{% for ", "(", "x in y %}{% endfor %}"),
            ("{% if x %}", "{% elif x %}", "{% endif %}"),
            ("{% if x %}", "{%- elif x -%}", "{% endif %}"),
        ] {
            let error = rendered(&[before, &step.repeat((1 << 17) / step.len()), after].concat()).unwrap_err();
            assert!(error.contains("too long an expression, or too many cases"), "{step}: {error}");
        }
        let cases = format!("{{% if x %}}{}{{% else %}}b{{% endif %}}", "{% elif x %}a".repeat(100));
        assert_eq!(rendered(&cases).as_deref(), Ok("b"));
        let sum = format!("{{{{ 0{} }}}}", " + 1".repeat(499));
        assert_eq!(rendered(&sum).as_deref(), Ok("499"));
        // As in the template of a model that translates.
        let languages: Vec<String> = (0..2000).map(|i| format!("'{i}': 'language {i}'")).collect();
        let table = format!("{{% set l = {{ {} }} %}}{{{{ l['7'] }}}}", languages.join(", "));
        assert_eq!(rendered(&table).as_deref(), Ok("language 7"));
    }

    /// The compiler works these out, and each would have 100 MB.
    #[test]
    fn constants_that_multiply_to_much_are_refused_before_they_are_compiled() {
        for source in [
            "{{ 'a' * 100000000 }}",
            "{{ 100000000 * 'a' }}",
            "{{ ('a' * 10000) * 10000 }}",
            "{{ 'a' * 10 ** 8 }}",
            "{{ 'a' * (1 / 0.00000001) }}",
            "{{ 'a' * (99999999 + 1) }}",
            "{{ [1] * 100000000 }}",
            "{% set x = (1, 2) * 50000000 %}",
        ] {
            let error = rendered(source).unwrap_err();
            assert!(error.contains("multiplies constants to too much"), "{source}: {error}");
        }
        let large = "{{ 1000000 * 1000000 }}{{ messages[0].content * 2 }}{{ '  ' * 4 }}|{{ '-' * 40 }}";
        assert_eq!(rendered(large).unwrap(), format!("1000000000000HiHi        |{}", "-".repeat(40)));
    }

    /// Each would take more memory than a machine has, or overflow the stack.
    #[test]
    fn what_grows_without_end_is_stopped() {
        let doubled = |step: &str| {
            format!(
                "{{% set ns = namespace(x='aaaaaaaa') %}}{{% for i in range(60) %}}{{% set ns.x = {step} %}}{{% endfor %}}{{{{ ns.x|length }}}}"
            )
        };
        for step in [
            "ns.x ~ ns.x",
            "ns.x + ns.x",
            "ns.x * 1000",
            "[ns.x, ns.x]",
            "(ns.x, ns.x)",
            "{'a': ns.x, 'b': ns.x}",
            "ns.x|replace('a', 'aaaaaaaa')",
            "ns.x.replace('a', 'aaaaaaaa')",
            "range(99)|join(ns.x)",
            "ns.x.join(range(99)|map('string'))",
            "ns.x|tojson|tojson|tojson|tojson",
            "dict(a=ns.x, b=ns.x)",
            "namespace(a=ns.x, b=ns.x)",
            "[ns.x]|map('replace', 'a', ns.x)|join",
            "ns.x ~ '\\n' + ns.x|indent(9999)",
            "[ns.x] + [ns.x]",
        ] {
            let error = rendered(&doubled(step)).unwrap_err();
            assert!(error.contains("the template"), "{step}: {error}");
        }
        for source in [
            "{{ (1,) * 99999999 }}",
            "{{ range(99999)|list }}",
            "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
            "{% set ns = namespace() %}{% set ns.c = ns %}{% for i in range(9999) %}{% set ns.c.n = namespace() %}{% endfor %}",
        ] {
            let error = rendered(source).unwrap_err();
            assert!(error.contains("the template"), "{source}: {error}");
        }
        let block = "{% set x %}{{ x }}{{ x }}{{ x }}{{ x }}{% endset %}".repeat(30);
        assert!(rendered(&format!("{{% set x = 'aaaa' %}}{block}")).unwrap_err().contains("the template"));
        let raw = format!(
            "{{% set x %}}{{% for i in range(99999) %}}{}{{% endfor %}}{{% endset %}}",
            "x".repeat(50_000)
        );
        assert!(rendered(&raw).unwrap_err().contains("fuel"));
        assert!(
            rendered("{{ '%99999999d'|format(1) }}").is_err()
                && rendered("{{ '{:99999999}'.format(1) }}").is_err()
        );
    }
}
