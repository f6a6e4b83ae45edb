//! What task files of lm-evaluation-harness take from Python: how values look as text, lists written as text, and the draw of
//! few-shot examples.

use std::collections::HashSet;

use serde_json::Value;

use crate::jinja::text::{float, quoted};

/// `str(value)`.
pub fn str(value: &Value) -> String {
    if let Value::String(text) = value { text.clone() } else { repr(value) }
}

/// `repr(value)`.
pub fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) if number.is_f64() => float(number.as_f64().unwrap_or_default()),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(values) => format!("[{}]", values.iter().map(repr).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(key, value)| format!("{}: {}", quoted(key), repr(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// `ast.literal_eval(text)`, for lists and tuples, strings, numbers, `True`, `False` and `None`; `None` for anything else.
pub fn literal(text: &str) -> Option<Value> {
    let mut reader = Literal { rest: text.trim(), depth: 0 };
    let value = reader.value()?;
    reader.rest.trim().is_empty().then_some(value)
}

struct Literal<'a> {
    rest: &'a str,
    depth: usize,
}

impl Literal<'_> {
    fn value(&mut self) -> Option<Value> {
        self.rest = self.rest.trim_start();
        let close = match self.rest.chars().next()? {
            '[' => ']',
            '(' => ')',
            '\'' | '"' => return self.strings(),
            _ => return self.word(),
        };
        self.depth += 1;
        let mut values = Vec::new();
        self.rest = self.rest[1..].trim_start();
        while !self.rest.starts_with(close) && self.depth < 50 {
            values.push(self.value()?);
            self.rest = self.rest.trim_start();
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest.trim_start(),
                None if self.rest.starts_with(close) => {}
                None => return None,
            }
        }
        self.depth -= 1;
        self.rest = self.rest.strip_prefix(close)?;
        Some(Value::Array(values))
    }

    /// Strings next to each other are one.
    fn strings(&mut self) -> Option<Value> {
        let mut text = String::new();
        while let Some(quote @ ('\'' | '"')) = self.rest.chars().next() {
            let mut chars = self.rest[1..].char_indices();
            let end = loop {
                let (at, c) = chars.next()?;
                match c {
                    c if c == quote => break at + 2,
                    '\n' => return None,
                    '\\' => text.push_str(&escape(&mut chars)?),
                    c => text.push(c),
                }
            };
            self.rest = self.rest[end..].trim_start();
        }
        Some(Value::String(text))
    }

    fn word(&mut self) -> Option<Value> {
        let end = self.rest.find([',', ']', ')', ' ', '\n']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" => Some(true.into()),
            "False" => Some(false.into()),
            "None" => Some(Value::Null),
            _ => {
                let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
                // Python has no integers that begin with 0.
                let is_integer = digits.len() == 1 || !digits.starts_with('0');
                let integer = word.parse::<i64>().ok().filter(|_| is_integer).map(Value::from);
                let float = || word.parse::<f64>().ok().filter(|_| word.contains(['.', 'e', 'E']));
                integer.or_else(|| float().map(Value::from))
            }
        }
    }
}

/// What a backslash stands for.
fn escape(chars: &mut std::str::CharIndices<'_>) -> Option<String> {
    let (_, c) = chars.next()?;
    let digits = match c {
        'n' => return Some("\n".into()),
        't' => return Some("\t".into()),
        'r' => return Some("\r".into()),
        '\n' => return Some(String::new()),
        '\\' | '\'' | '"' => return Some(c.into()),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => return Some(format!("\\{c}")),
    };
    let code: String = chars.take(digits).map(|(_, c)| c).collect();
    Some(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?.to_string())
}

/// Python's `random.Random(seed)`: MT19937, and `sample` of it.
pub struct Random {
    state: Vec<u32>,
    at: usize,
}

const N: usize = 624;

impl Random {
    pub fn new(seed: u32) -> Random {
        let mut state = vec![19_650_218u32; N];
        for i in 1..N {
            let last = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = last.wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        // `init_by_array` with the seed as its only key.
        let mut i = 1;
        let mut advance = |state: &mut Vec<u32>, factor: u32, add: &dyn Fn(usize) -> u32| {
            let last = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = (state[i] ^ last.wrapping_mul(factor)).wrapping_add(add(i));
            i += 1;
            if i == N {
                state[0] = state[N - 1];
                i = 1;
            }
        };
        for _ in 0..N {
            advance(&mut state, 1_664_525, &|_| seed);
        }
        for _ in 0..N - 1 {
            advance(&mut state, 1_566_083_941, &|i| (i as u32).wrapping_neg());
        }
        state[0] = 1 << 31;
        Random { state, at: N }
    }

    fn next(&mut self) -> u32 {
        if self.at == N {
            for i in 0..N {
                let y = (self.state[i] & (1 << 31)) | (self.state[(i + 1) % N] & (u32::MAX >> 1));
                let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[i] = self.state[(i + 397) % N] ^ (y >> 1) ^ twist;
            }
            self.at = 0;
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// A number below `n`, which is not 0.
    fn below(&mut self, n: usize) -> usize {
        let bits = usize::BITS - n.leading_zeros();
        loop {
            let drawn = (self.next() >> (32 - bits)) as usize;
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `sample(range(n), k)`: k different indices below n, which is at most 2^32 and not below k.
    pub fn sample(&mut self, n: usize, k: usize) -> Vec<usize> {
        // Where Python's own set of the indices would be smaller than the list.
        let mut set_size = 21;
        if k > 5 {
            let mut power = 1;
            while power < 3 * k {
                power *= 4;
            }
            set_size += power;
        }
        if n <= set_size {
            let mut pool: Vec<usize> = (0..n).collect();
            return (0..k).map(|_| pool.swap_remove(self.below(pool.len()))).collect();
        }
        let mut drawn = HashSet::new();
        let mut draw = || {
            loop {
                let j = self.below(n);
                if drawn.insert(j) {
                    return j;
                }
            }
        };
        (0..k).map(|_| draw()).collect()
    }
}
