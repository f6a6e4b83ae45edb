"""Scores as formulas, by their definition: every value that a memory function needs is kept, and the function is computed from
all of them at every step. Needs numpy.

A word is a number for each living entry and each query head of the decision (policies.Step says which). The formula is computed
for each query head and then pooled over them, by mean or max; `pooled(x)` pools x at that place instead.

    over the steps since an entry joined   sum(x)  mean(x)  std(x)  ema(x, g): S <- g S + x  peak(x)  window(x, w): sum of the
                                           last w  peak(x, w)  count(x): steps at which x is not 0
    over the living entries                rank(x): how many unprotected ones have a lower x, or the same and are older
                                           softmax(x)  share(x): x / sum of x
                                           smooth(x, n): sum over those of the n nearest entries, itself included, that are
                                           unprotected, divided by n  smooth_max(x, n): the largest of these
                                           block(x, n): mean over the entries whose position has the same floor(position / n)
                                           lag_score(n)
                                           page_bound(n): see policies.Step
    over the query heads                   pooled(x)  pooled_mean(x)  pooled_max(x)
    of the queries so far                  expected_attention(n)  expected_attention_mean(n): without their covariance
    of vectors in a file                   dot("file", "tensor")  rotated_dot("file", "tensor"), (layers, heads, dim)
    of the token's text                    token_in("a", "b", ...): 1 or 0
    of numbers                             + - * /  < <= > >= == !=  min  max  abs  log  exp  sqrt  if(condition, x, y)

g and w are numbers or made of numbers and `size`; w is rounded up, and at least 1. n is a whole number, with smooth and smooth_max odd.
`size` is that of the case, also where heads or layers have others; only where another score has said how many entries a head keeps, it is
that number, except in functions over the steps.

A score that is the same in all of a block, because nothing in it but block(x, n), with one n, differs between entries, is one of whole
blocks: `block` of the formula is n, and entries leave block by block. `reread_attention` can be in no function over the steps.
"""
import ast, math, operator, re
import numpy as np
from policies import BUDGETS, PRESETS, SCHEDULES, SELECT, Policy, parts, softmax

WORDS = ["attention", "logit", "age", "position", "key_norm", "value_norm", "value_norm2", "output_shift", "key_similarity", "random",
         "gumbel", "future_attention", "projected_value_norm", "key_redundancy", "reread_attention"]
ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
COMPARE = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
           ast.NotEq: operator.ne}
# function -> how many arguments it can have
MEMORY = {"sum": [1], "mean": [1], "std": [1], "ema": [2], "peak": [1, 2], "window": [2], "count": [1]}
OTHERS = {"rank": [1], "softmax": [1], "share": [1], "pooled": [1], "pooled_mean": [1], "pooled_max": [1], "min": [2], "max": [2],
          "abs": [1], "log": [1], "exp": [1], "sqrt": [1], "if_": [3]}
# those that give the same for entries that have the same
EACH = ["pooled", "pooled_mean", "pooled_max", "min", "max", "abs", "log", "exp", "sqrt", "if_"]
# the last argument is a whole number
OF_ENTRIES = ["smooth", "smooth_max", "block"]
OF_NUMBER = ["expected_attention", "expected_attention_mean", "lag_score", "page_bound"]
OF_STRINGS = ["dot", "rotated_dot", "token_in"]


def remembers(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MEMORY


class Formula:
    def __init__(self, text, size, pool="mean"):
        self.text, self.size, self.pool = text, size, pool
        # `if` is a word of Python; what is in quotes stays as it is
        python = re.sub(r'"(?:[^"\\]|\\.)*"|\bif\s*\(', lambda m: m[0] if m[0][0] == '"' else "if_(", text)
        try:
            self.tree = ast.parse(python, mode="eval").body
        except SyntaxError:
            raise SystemExit(f"{text!r} is not a formula") from None
        self.names = {node: f"value {i}" for i, node in enumerate(ast.walk(self.tree))}
        lengths = self.same_in(self.tree)
        self.block = lengths.pop() if lengths and len(lengths) == 1 else None
        for node in ast.walk(self.tree):
            if remembers(node) and any(isinstance(x, ast.Name) and x.id == "reread_attention" for x in ast.walk(node)):
                raise SystemExit(f"{text}: reread_attention is known at one step only")

    def same_in(self, node):
        """The lengths of the blocks that alone make a value differ between entries, or None if something else does."""
        match node:
            case ast.Constant() | ast.Name(id="size"):
                return set()
            case ast.Call(func=ast.Name(id="block"), args=[_, ast.Constant(value=n)]) | ast.Call(
                    func=ast.Name(id="page_bound"), args=[ast.Constant(value=n)]):
                return {n}
            case ast.Call(func=ast.Name(id=name)) if name in EACH:
                inner = node.args
            case ast.UnaryOp():
                inner = [node.operand]
            case ast.BinOp():
                inner = [node.left, node.right]
            case ast.Compare():
                inner = [node.left, *node.comparators]
            case _:
                return None
        lengths = [self.same_in(x) for x in inner]
        return None if None in lengths else set().union(*lengths)

    def __call__(self, step):
        if step.due:
            return self.full(step, self.value(step, self.tree))
        # nothing leaves at this step: only what is remembered matters
        waiting = [self.tree]
        for node in waiting:
            if remembers(node):
                self.value(step, node)
            else:
                waiting += ast.iter_child_nodes(node)

    def full(self, s, x):
        return np.broadcast_to(np.asarray(x, s.dtype), s.attention.shape).copy()

    def number(self, node):
        """the second argument of ema, window and peak: numbers and `size`"""
        match node:
            case ast.Constant(value=int() | float()):
                return float(node.value)
            case ast.Name(id="size"):
                return float(self.size)
            case ast.UnaryOp(op=ast.USub()):
                return -self.number(node.operand)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return ARITHMETIC[type(node.op)](self.number(node.left), self.number(node.right))
        raise SystemExit(f"{self.text}: {ast.unparse(node)} is not made of numbers and `size`")

    def whole(self, name, node):
        least = {"lag_score": 2}.get(name, 1)
        if not (isinstance(node, ast.Constant) and type(node.value) is int and node.value >= least) or (
                name in ("smooth", "smooth_max") and node.value % 2 == 0):
            raise SystemExit(f"{self.text}: {ast.unparse(node)} is no number for {name}")
        return node.value

    def value(self, s, node):
        match node:
            case ast.Constant(value=int() | float()):
                return s.dtype.type(node.value)
            case ast.Name(id="size"):
                return s.dtype.type(self.size if s.kept is None else s.kept)
            case ast.Name(id=word) if word in WORDS:
                return getattr(s, word)
            case ast.UnaryOp(op=ast.USub()):
                return -self.value(s, node.operand)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return ARITHMETIC[type(node.op)](self.value(s, node.left), self.value(s, node.right))
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in COMPARE:
                return np.asarray(COMPARE[type(op)](self.value(s, node.left), self.value(s, right))).astype(s.dtype)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if len(node.args) in MEMORY.get(name, []):
                return self.over_time(s, name, node)
            case ast.Call(func=ast.Name(id=name), keywords=[]) if len(node.args) in OTHERS.get(name, []):
                return self.now(s, name, *(self.value(s, x) for x in node.args))
            case ast.Call(func=ast.Name(id=name), args=[x, n], keywords=[]) if name in OF_ENTRIES:
                return self.around(s, name, self.full(s, self.value(s, x)), self.whole(name, n))
            case ast.Call(func=ast.Name(id=name), args=[n], keywords=[]) if name in OF_NUMBER:
                n = self.whole(name, n)
                if name in ("lag_score", "page_bound"):
                    return getattr(s, name)(n)
                return s.expected_attention(n, covariance=name == "expected_attention")
            case ast.Call(func=ast.Name(id=name), keywords=[]) if name in OF_STRINGS:
                strings = [x.value for x in node.args if isinstance(x, ast.Constant) and isinstance(x.value, str)]
                if len(strings) == len(node.args) and strings and (name == "token_in" or len(strings) == 2):
                    return s.token_in(strings) if name == "token_in" else s.dot(*strings, rotated=name == "rotated_dot")
        raise SystemExit(f"{self.text}: no such thing as {ast.unparse(node)}")

    def over_time(self, s, name, node):
        """Memory: over the rows since the entry joined. They are the last age + 1 of all rows."""
        kept, s.kept = s.kept, None  # at most steps it is not known
        x, s.kept = self.full(s, self.value(s, node.args[0])), kept
        past = np.concatenate([s.recall(self.names[node], (s.t, x.shape[1])), x[:, None]], 1)       # (n, t + 1, H)
        s.remember(self.names[node], past)
        row = np.arange(s.t + 1)
        own = (row >= s.born[:, None])[:, :, None]
        second = self.number(node.args[1]) if len(node.args) == 2 else None
        if second is not None and name != "ema":
            own = own & (row > s.t - max(math.ceil(second), 1))[:, None]
        total = lambda y: np.where(own, y, 0).sum(1).astype(s.dtype)
        rows = s.age + 1
        match name:
            case "sum" | "window":
                return total(past)
            case "mean":
                return total(past) / rows
            case "std":
                return np.sqrt(np.maximum(total(past**2) / rows - (total(past) / rows) ** 2, 0))
            case "ema":
                return total(past * (second ** (s.t - row)).astype(s.dtype)[:, None])
            case "peak":
                return np.where(own, past, -np.inf).max(1)
            case "count":
                return total(past != 0)

    def around(self, s, name, x, n):
        """of the unprotected ones of the n entries around each, or of its block"""
        out = np.zeros_like(x)
        for i, b in enumerate(s.born):
            near = [j for j in range(i - (n - 1) // 2, i + (n - 1) // 2 + 1) if 0 <= j < len(x) and not s.protected[j]]
            match name:
                case "smooth":
                    out[i] = x[near].sum(0) / s.dtype.type(n)
                case "smooth_max":
                    out[i] = x[near].max(0, initial=-np.inf)
                case "block":
                    out[i] = x[s.born // n == b // n].mean(0)
        return out

    def now(self, s, name, x, y=None, z=None):
        match name:
            case "rank":
                x, rank = self.full(s, x), np.zeros(s.attention.shape, s.dtype)
                x = np.where(np.isnan(x), np.inf, x)
                for i in range(len(s.born)):
                    lower = (x < x[i]) | (x == x[i]) & (s.born < s.born[i])[:, None]
                    rank[i] = lower[~s.protected].sum(0)
                return rank
            case "softmax":
                return softmax(self.full(s, x))
            case "share":
                return self.full(s, x) / self.full(s, x).sum(0)
            case "pooled" | "pooled_mean" | "pooled_max":
                return np.repeat(pool(self.full(s, x), name[7:] or self.pool)[:, None], len(s.heads), 1)
            case "min":
                return np.minimum(x, y)
            case "max":
                return np.maximum(x, y)
            case "if_":
                return np.where(x != 0, y, z)
        return {"abs": np.abs, "log": np.log, "exp": np.exp, "sqrt": np.sqrt}[name](x)


def pool(x, how):
    """(n, H) -> (n,)"""
    return x.mean(1) if how == "mean" else x.max(1)


def policy(text, scope, size, pool="mean", keep_first=0, keep_recent=0, schedule="1", budget=None, select_from=None,
           layers=None):
    rule = Formula(text, size, pool)
    return Policy(rule, scope, size, pool, keep_first, keep_recent, rule.block, schedule, budget, select_from, layers)


def of_preset(name, size):
    """The formula of a preset, under the name's scope and protection."""
    name, scope, keep_first, keep_recent = parts(name)
    return policy(PRESETS[name][1], scope, size, "mean", keep_first, keep_recent, SCHEDULES.get(name, "1"), BUDGETS.get(name),
                  SELECT.get(name))
