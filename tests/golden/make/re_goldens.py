#!/usr/bin/env python3
"""What CPython 3.11's `re` finds and replaces, for the table tests/golden/python_re.json.

    python3.11 tests/golden/make/re_goldens.py > tests/golden/python_re.json

An entry is a pattern with a text, `re.findall`, a replacement, and `re.sub` with it; or a pattern, or a pattern and a replacement,
that Python refuses. The first are those of lm-evaluation-harness 0.4.13, each on the same answers.
"""
import json, re, sys, warnings

assert sys.version_info[:2] == (3, 11)
warnings.simplefilter("ignore")

HARNESS = [
    r"#### (\-?[0-9\.\,]+)", r"(-?[$0-9.,]{2,})|(-?[0-9]+)", r"(?s).*#### ", r"([-0-9]+)", r"(\([A-Z]\))", r"(\b[ABCD]\b)", ",",
    r"((?<=The answer is )(.*)(?=.)|(?<=the answer is )(.*)(?=.)|(?<=The answer: )(.*)(?=.)|(?<=The final answer: )(.*)(?=.))",
    r"(?<= )([\" \[\(<{}>\)\]]+)|([\" \[\(<{}>\)\]]+)", r"(?=(female|woman|man|male))", r"\$", r"\.$", r"\s+$", r"^\s+",
    r"Erantzuna [$%]? ?(-?[0-9]+([ .,][0-9.,]+)?) ?[$%]? da", r"The answer is (\-?[0-9\.\,]*[0-9]+)", r"^\s*([A-D])",
    r"The answer is (\-?[0-9\.\,]+).", r"\b(?:The |the |An |A |The |a |an )", r"\b(True|False)\b", r"\b(Yes|No|yes|no)\b",
    r"(-?[0-9]+([ .,][0-9.,]+)?)", r"La réponse est (\-?[0-9\.\,]+)", r"The final answer is ((-?[$0-9.,]{2,})|(-?[0-9]+))",
    r"Ответ — (\-?[0-9\.\,]+)", r"答案是 (\-?[0-9\.\,]+)。",
]
ANSWERS = [
    "The answer is 1,024.\n#### 1,024\n", "the answer is (B)\n", " A woman paid $5.50, then -3. The final answer is $2.50",
    "Yes, True. An A or a B: (C)\n\n", "Ответ — 12,5 答案是 7。La réponse est -3", "Erantzuna % 12 500.0 $ da", "", "\n",
]
# A pattern, texts, and a replacement.
OWN = [
    # Ends and beginnings.
    (r"(\d+)$", ["The answer is 5\n", "5", "5\n\n", "5\n6"], r"<\1>"), (r"(\S+)$", ["a b\n", "a b", "\n", "a b \n"], "-"),
    (r"$", ["a\n", "", "\n", "a\nb\n"], "|"), (r"(?m)$", ["a\n", "", "\n", "a\nb\n"], "|"), (r"(?m)^", ["a\nb\n", ""], ">"),
    (r"^", ["a\nb", ""], ">"), (r"\Z", ["a\n", "a"], "|"), (r"\A\w", ["ab", "\nab"], "-"), (r"(?m)^\w+$", ["ab\ncd\n", "a b\nc"], "-"),
    (r"(?m)\A.", ["a\nb"], "-"), (r"a$\n", ["a\n"], "-"), (r"(?m:^b)|a$", ["a\nb\na\n"], "-"), (r".$", ["ab\n", "a\u2028"], "-"),
    (r"(?s).$", ["ab\n", "ab\n\n"], "-"), (r"(?<=a$)\n", ["a\n"], "-"), (r"(\w+)\s*$", ["one two \n", "x\u001c"], r"[\g<1>]"),
    # Classes by Unicode.
    (r"\d+", ["१२३ 4５", "²½"], "#"), (r"\w+", ["naïve e\u0301te\u0301", "a‿b", "x² Ⅷ ½", "a\u200db", "한국 ภาษา"], "#"),
    (r"\s+", ["a\u001cb\u001fc\u0085d\u00a0e\u3000f\u200bg"], "_"), (r"\S+", ["a\u001db\ufeffc"], "_"), (r"\W", ["é\u0301²‿_"], "#"),
    (r"\D+", ["1２x"], "#"), (r"\bé\b", ["é", "été é", "e\u0301"], "#"), (r"\b", ["ab é\u0301c", "", "a‿b ²"], "|"),
    (r"\B", ["ab é\u0301c", "", " ", "²a"], "|"),

    (r"[\w-]+", ["a-b é-²", "-"], "#"), (r"[^\W\d_]+", ["ab1_é²"], "#"), (r"[\s\S]", ["a\n"], "."), (r"[^\s]+", ["a\u001cb"], "#"),
    (r"[\d.,]+", ["3.१४,x"], "#"),
    # Flags.
    (r"(?i)straße|K", ["STRASSE STRAßE k \u212a", "straẞe"], "#"), (r"(?i)[a-k]+", ["AbK\u212aL"], "#"),
    (r"(?i:a)b", ["Ab AB aB ab"], "#"), (r"(?i)a(?-i:b)", ["Ab AB"], "#"), (r"(?i)(a)\1", ["aA Aa ab"], "#"), (r"(?i)é", ["É e\u0301"], "#"),
    (r"(?is)a.b", ["A\nB"], "#"), (r"(?im)^(the|a)\s", ["The x\na y\nAn z"], ""), (r"(?i)σ+", ["Σσς"], "#"),
    (r"(?s-m:.)", ["\n"], "x"),
    (r"(?u)\w", ["é"], "#"),
    (r"(?s)a.+?b", ["a\nb a b"], "#"), (r"a.b", ["a\nb a\rb a\u2028b"], "#"),
    # Groups.
    (r"(?P<n>\d+)-(?P<w>\w+)", ["1-a 22-bé"], r"\g<w>:\g<n>"), (r"(?P<q>['\"]).*?(?P=q)", ["'a' \"b'c\""], r"<\g<q>>"),
    (r"(a)|(b)", ["ab"], r"[\1\2]"), (r"((a)(b)?)", ["aba"], r"\3\2"), (r"(a)?", ["ba"], r"<\1>"), (r"(\w)(\w)\2\1", ["abba xyzz"], r"\2\1"),
    (r"(a)(?:b)(?=c)", ["abc abd"], r"\g<0>\g<1>0"),
    (r"(a+)+b", ["aaab", "aab ab"], r"\1"), (r"(a|ab)(c|bcd)(d*)", ["abcd"], r"\1,\2,\3"), (r"()", ["ab"], "-"), (r"(a+)*", ["b", "aa"], "#"),
    (r"(?:(a)|b)*", ["ab", "ba"], r"\1"), (r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10", ["abcdefghijj"], r"\10"), (r"(a)\1(?:0)", ["aa0"], r"\1"),
    # Repetitions.
    (r"a++b", ["aab"], "#"), (r"a++a", ["aaa"], "#"), (r"(?>a|ab)c", ["abc ac"], "#"), (r"a*+", ["baa"], "-"), (r"a?+a", ["a aa"], "-"),
    (r"a{2}", ["aaaaa"], "-"), (r"a{,2}", ["aaa"], "-"), (r"a{2,}", ["aaab a"], "-"), (r"a{1,2}?", ["aaa"], "-"), (r"a{1,2}+a", ["aaa"], "-"),
    (r"a{,}", ["aab"], "-"), (r"a{", ["a{"], "-"), (r"a{}", ["a{}"], "-"), (r"a{1,x}", ["a{1,x}"], "-"), (r"x{a}", ["x{a}"], "-"),
    (r"(?:a{2}){2}", ["aaaaa"], "-"), (r"\d{3,4}", ["12345678"], "-"), (r"(?:ab|c){2,3}", ["abcabcc"], "-"),
    # Empty matches, and what follows them.
    (r"a*", ["aab", "baac", ""], "-"), (r"a*?", ["aaa", "baa"], "-"), (r"x*", ["abxd"], "-"), (r"|a", ["aa"], "-"), (r"a|", ["aab"], "-"),
    (r"\b|\w+", ["hello world"], "-"), (r"(?=a)|a", ["aa"], "-"), (r"\d*$", ["a12\n", "12"], "-"), (r"(\w*)", ["ab é"], r"<\1>"),
    (r"\s*", ["a  b"], "_"), (r"(?=(\w\w))", ["abcd"], r"\1|"), (r"(?<=(a))", ["aab"], "-"), (r"(a??)(b??)", ["ab"], r"[\1\2]"), (r"(?:)", ["é한"], "."),
    # Looking around.
    (r"(?<!\d)5(?!\d)", ["5 55 x5y"], "#"), (r"(?<=é)a", ["éa ea"], "#"), (r"(?<![\w])a\b", ["a ba a1"], "#"), (r"(?!)|a", ["a"], "#"),
    (r"(?<=\bcat)s", ["cats scats"], "#"), (r"(?<=a|b)c", ["ac bc cc"], "#"), (r"a(?!b|c)", ["ab ac ad"], "#"),
    # Characters with another meaning in another engine.
    (r"[[]", ["[]"], "#"), (r"[]a]", ["]a["], "#"), (r"[^]a]", ["]ab"], "#"), (r"[a&&b]", ["a&b"], "#"), (r"[+--]", ["+,-."], "#"),
    (r"[a~~b]", ["a~b"], "#"), (r"[[a-c]]", ["a]b"], "#"), (r"[a\]b]", ["]a"], "#"), (r"[\[\(\{]", ["[({"], "#"), (r"[-a]", ["-a"], "#"),
    (r"[a-]", ["-a"], "#"), (r"[\w-]", ["-a."], "#"), (r"[.^$*]", [".^$*a"], "#"), (r"[\b]", ["a\bb"], "#"), (r"[\n\t ]", ["\n\t "], "#"),
    (r"[\x41-\x43\u00e9]", ["ABCDé"], "#"), (r"\<a\>", ["<a> a"], "#"),
    (r"\#\ \-\/\%\&\~\`\'\@", ["# -/%&~`'@"], "#"), (r"a\.b\\c", ["a.b\\c axb"], "#"), (r"#x y", ["#x y"], "-"), (r"\U0001F600", ["😀"], "#"),
    (r"[é-ü]+", ["éèü z"], "#"), (r"😀+", ["😀😀a"], "#"), (r"[^a]", ["a\nb"], "#"), (r"\\boxed\{([^}]*)\}", ["so \\boxed{4}."], r"\1"),
    # Replacements.
    (r"a", ["bab"], r"\n\t\\"), (r"a", ["bab"], r"\.\-\$"), (r"(a)", ["bab"], r"\g<1>1\g<0>"), (r"a", ["bab"], "$1 ${x} $$"),
    (r"(?P<x>a)|(?P<y>b)", ["ab"], r"\g<x>-\g<y>,"), (r"(\d)(\d)", ["12 34"], r"\2\1"), (r"\d", ["1２"], r"\\d"), (r"(.)", ["a\nb"], r"\1\1"), (r"[.](.)", ["a.b.c"], r"-\1"),
]
REFUSED = [
    "(", ")", "a)", "[", "[a", "*", "a**", "a*{2}", "^*", r"\b+", "(?", "(?P<n", "(?P<1a>x)", "(?P<n>a)(?P<n>b)", "(?P=n)", r"\1", r"(a\1)", r"\q", r"\z", r"[\w-a]",
    "[b-a]", "(?z)", "a(?i)b", "(?L)a", "(?<n>a)", "(?P>n)", "a{2,1}", r"\x4", r"\u12", r"[\8]", r"\400", "(?(1)a|b)", "(?(x)a)", "(a)(?(1)a|b|c)", "a\\", r"(?-a:b)", "(?i-i", "a+*", "(?:a", r"\g<1>",
]
REFUSED_REPLACEMENTS = [("a", r"\1"), ("a", r"\g<x>"), ("a", r"\q"), ("a", "x\\"), ("(a)", r"\2"), ("a", r"\g<1"), ("(?P<n>a)", r"\g<m>"), ("a", r"\400"), ("a", r"\g1")]

rows = [(pattern, text, "<>") for pattern in HARNESS for text in ANSWERS]
rows += [(pattern, text, replacement) for pattern, texts, replacement in OWN for text in texts]
table = []
for pattern, text, replacement in rows:
    found = [list(match) if isinstance(match, tuple) else match for match in re.findall(pattern, text)]
    table.append([pattern, text, found, replacement, re.sub(pattern, replacement, text)])
for pattern in REFUSED:
    try:
        re.compile(pattern)
        sys.exit(f"Python takes {pattern}")
    except re.error:
        table.append([pattern])
for pattern, replacement in REFUSED_REPLACEMENTS:
    try:
        re.sub(pattern, replacement, "a")
        sys.exit(f"Python takes {replacement}")
    except (re.error, IndexError):
        table.append([pattern, replacement])
print("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in table) + "\n]")
