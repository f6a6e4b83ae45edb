//! A formula as a list of instructions, each of which makes columns of others. Equal parts are computed once.

use super::canonical::Expr;
use super::vectors::FileVectors;
use super::words::{Function, Kind, Per, Word};

/// Where an instruction's arguments come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operand {
    /// The result of an earlier instruction.
    Result(usize),
    Number(f32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Operation {
    Word(Word),
    /// Attention, averaged over the heads of the group.
    PooledAttention,
    /// With its last argument, where that is a number and no column: of what remembers, a factor or a number of steps (0: all).
    Function(Function, f32),
    /// Keys times the vectors of a file; none where a formula was read from rows.
    Dot {
        vectors: Option<&'static FileVectors>,
        rotated: bool,
    },
    /// Whether the token is one of these texts.
    TokenIn(&'static [Expr]),
}

impl Operation {
    /// What has a value of its own, where that is not what its arguments' values belong to.
    fn per(self) -> Option<Per> {
        match self {
            Operation::Word(word) => Some(word.row().per),
            Operation::Function(function, _) => match function.row().kind {
                Kind::Own(per) => Some(per),
                _ => None,
            },
            Operation::Dot { .. } => Some(Per::QueryHead),
            Operation::TokenIn(_) => Some(Per::Decision),
            _ => None,
        }
    }

    /// Whether it is known when an entry joins, and never changes.
    pub fn is_fixed(self) -> bool {
        match self {
            // It is an instruction only where it may change.
            Operation::Word(Word::Size) => false,
            Operation::Word(word) => word.row().is_fixed,
            Operation::Dot { rotated, .. } => !rotated,
            Operation::TokenIn(_) => true,
            _ => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Instruction {
    pub operation: Operation,
    pub arguments: Vec<Operand>,
    /// Whether query heads have columns of their own.
    pub per_head: bool,
    /// Whether it is needed at every step, because something later remembers it.
    pub always: bool,
}

/// How many columns an instruction needs for a decision.
pub(super) struct Columns {
    /// Columns of results of each row.
    pub results: usize,
    /// Columns of f32 that stay from row to row.
    pub kept: usize,
    /// Columns of f64 that stay from row to row.
    pub totals: usize,
}

impl Instruction {
    pub fn uses(&self, word: Word) -> bool {
        self.operation == Operation::Word(word)
    }

    /// Whether key-value heads have columns, and not query heads.
    fn is_per_kv_head(&self) -> bool {
        self.operation.per() == Some(Per::KeyValueHead)
    }

    /// Whether it needs the mean of queries, and their covariance.
    pub fn expects(&self) -> bool {
        matches!(
            self.operation,
            Operation::Function(Function::ExpectedAttention | Function::ExpectedAttentionMean, _)
        )
    }

    /// Of how many of the last steps its value needs all that is computed, where those are the steps of its arguments; `None` if of all. The
    /// mean and covariance of queries are known besides, but of the last step only.
    fn horizon(&self, arguments: Option<usize>, expecting: bool) -> Option<usize> {
        match self.operation {
            Operation::Word(Word::FutureAttention) => None,
            Operation::Function(Function::Window | Function::Peak, steps) if steps > 0.0 && !expecting => {
                arguments.map(|own| own + steps as usize - 1)
            }
            Operation::Function(function, _) if function.remembers() => None,
            _ => arguments,
        }
    }

    /// How many of `heads` query heads of a decision share a column, where `per_kv` share a key-value head.
    pub fn sharing(&self, heads: usize, per_kv: usize) -> usize {
        match self.per_head {
            false => heads,
            true if self.is_per_kv_head() => per_kv,
            true => 1,
        }
    }

    /// Whether its value is a column that it keeps.
    pub fn value_is_kept(&self) -> bool {
        match self.operation {
            fixed if fixed.is_fixed() => true,
            Operation::Function(Function::Sum | Function::Ema, _) => true,
            Operation::Function(Function::Peak, steps) => steps == 0.0,
            _ => false,
        }
    }

    /// Its columns for a decision of so many query heads.
    pub fn columns(&self, heads: usize, per_kv: usize) -> Columns {
        let own = heads / self.sharing(heads, per_kv);
        let (kept, totals) = match self.operation {
            fixed if fixed.is_fixed() => return Columns { results: 0, kept: own, totals: 0 },
            Operation::Word(Word::FutureAttention) => (0, 1),
            Operation::Function(Function::Std, _) => (2 * own, 0),
            Operation::Function(Function::Window, steps) => (steps as usize * own, own),
            Operation::Function(Function::Peak, steps) if steps > 0.0 => (steps as usize * own, 0),
            Operation::Function(function, _) if function.remembers() => (own, 0),
            _ => (0, 0),
        };
        Columns { results: own, kept, totals }
    }
}

/// The instructions of a formula at a cache size, which only parameters of functions depend on where `sizes_differ`. The last one's columns
/// are the score, the same for all heads.
pub(super) fn compile(expr: &'static Expr, size: usize, sizes_differ: bool) -> Vec<Instruction> {
    let mut program = Vec::new();
    compile_into(expr, (size, sizes_differ), &mut program);
    for index in (0..program.len()).rev() {
        let instruction: &Instruction = &program[index];
        let remembers = matches!(instruction.operation, Operation::Function(function, _) if function.remembers());
        if !instruction.always && !remembers && !instruction.uses(Word::FutureAttention) {
            continue;
        }
        let arguments = instruction.arguments.clone();
        program[index].always = true;
        for argument in arguments {
            if let Operand::Result(argument) = argument {
                program[argument].always = true;
            }
        }
    }
    program
}

/// How many of the last steps, and so of the last rows of queries, a score needs: one of what remembers nothing, `None` where all count.
pub(super) fn horizon(program: &[Instruction]) -> Option<usize> {
    // Of each instruction, and whether it depends on the mean of queries.
    let mut known: Vec<(Option<usize>, bool)> = Vec::new();
    for instruction in program {
        let of_argument = |argument: &Operand| match argument {
            Operand::Result(index) => known[*index],
            Operand::Number(_) => (Some(1), false),
        };
        let arguments: Vec<_> = instruction.arguments.iter().map(of_argument).collect();
        let most = arguments.iter().try_fold(1, |most, (own, _)| Some((*own)?.max(most)));
        let expecting = instruction.expects() || arguments.iter().any(|(_, expecting)| *expecting);
        known.push((instruction.horizon(most, expecting), expecting));
    }
    known.last().map_or(Some(1), |(horizon, _)| *horizon)
}

fn compile_into(expr: &'static Expr, sizes: (usize, bool), program: &mut Vec<Instruction>) -> Operand {
    let (size, sizes_differ) = sizes;
    let number = expr.number_at(Some(size)).filter(|_| !sizes_differ || !expr.has(Word::Size));
    if let Some(number) = number {
        return Operand::Number(number as f32);
    }
    let (function, arguments) = match expr {
        Expr::Number(number) => return Operand::Number(*number as f32),
        // Arguments of what is compiled as a whole.
        Expr::Text(_) => return Operand::Number(0.0),
        Expr::Word(word) => return push(Operation::Word(*word), vec![], expr.is_per_head(), program),
        Expr::Call(function, arguments) => (*function, arguments.as_slice()),
    };
    if let (Function::Add | Function::Multiply, [first, rest @ ..]) = (function, arguments) {
        // One after the other.
        let mut per_head = first.is_per_head();
        let mut sum = compile_into(first, sizes, program);
        for next in rest {
            per_head |= next.is_per_head();
            let next = compile_into(next, sizes, program);
            sum = push(Operation::Function(function, 0.0), vec![sum, next], per_head, program);
        }
        return sum;
    }
    let number =
        |which: usize| arguments.get(which).and_then(|number| number.number_at(Some(size))).unwrap_or(0.0);
    let (operation, inputs) = match function {
        Function::PooledMean if arguments[0] == Expr::Word(Word::Attention) => {
            (Operation::PooledAttention, &arguments[..0])
        }
        Function::Ema | Function::Smooth | Function::SmoothMax | Function::Block => {
            (Operation::Function(function, number(1) as f32), &arguments[..1])
        }
        function if function.remembers() => {
            (Operation::Function(function, number(1).ceil() as f32), &arguments[..1])
        }
        Function::Dot | Function::RotatedDot => {
            let vectors = FileVectors::of(arguments).ok();
            (Operation::Dot { vectors, rotated: function == Function::RotatedDot }, &arguments[..0])
        }
        Function::TokenIn => (Operation::TokenIn(arguments), &arguments[..0]),
        function if matches!(function.row().kind, Kind::Own(_)) => {
            (Operation::Function(function, number(0) as f32), &arguments[..0])
        }
        function => (Operation::Function(function, 0.0), arguments),
    };
    let inputs = inputs.iter().map(|argument| compile_into(argument, sizes, program)).collect();
    push(operation, inputs, expr.is_per_head(), program)
}

/// The result of an instruction, which is added unless there is an equal one.
fn push(operation: Operation, arguments: Vec<Operand>, per_head: bool, program: &mut Vec<Instruction>) -> Operand {
    let instruction = Instruction { operation, arguments, per_head, always: false };
    let index = program.iter().position(|other| *other == instruction).unwrap_or_else(|| {
        program.push(instruction);
        program.len() - 1
    });
    Operand::Result(index)
}
