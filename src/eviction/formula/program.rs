//! A formula as a list of instructions, each of which makes columns of others. Equal parts are computed once.

use super::canonical::Expr;
use super::words::{Function, Per, Word};

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
    Function(Function),
    /// A function that remembers, with its number: a factor, or a number of steps (0: all).
    Memory(Function, f32),
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
    /// Of each row.
    pub results: usize,
    /// Of f32 and of f64, that stay from row to row.
    pub kept: usize,
    pub totals: usize,
}

impl Instruction {
    pub fn uses(&self, word: Word) -> bool {
        self.operation == Operation::Word(word)
    }

    /// Whether key-value heads have columns, and not query heads.
    fn is_per_kv_head(&self) -> bool {
        matches!(self.operation, Operation::Word(word) if word.per() == Per::KeyValueHead)
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
            Operation::Word(word) => word.is_fixed(),
            Operation::Memory(Function::Sum | Function::Ema, _) => true,
            Operation::Memory(Function::Peak, steps) => steps == 0.0,
            _ => false,
        }
    }

    /// Its columns for a decision of so many query heads.
    pub fn columns(&self, heads: usize, per_kv: usize) -> Columns {
        let own = heads / self.sharing(heads, per_kv);
        let (kept, totals) = match self.operation {
            Operation::Word(word) if word.is_fixed() => return Columns { results: 0, kept: own, totals: 0 },
            Operation::Word(Word::FutureAttention) => (0, 1),
            Operation::Memory(Function::Std, _) => (2 * own, 0),
            Operation::Memory(Function::Window, steps) => (steps as usize * own, own),
            Operation::Memory(Function::Peak, steps) if steps > 0.0 => (steps as usize * own, 0),
            Operation::Memory(..) => (own, 0),
            _ => (0, 0),
        };
        Columns { results: own, kept, totals }
    }
}

/// The instructions of a formula at a cache size. The last one's columns are the score, the same for all heads.
pub(super) fn compile(expr: &Expr, size: usize) -> Vec<Instruction> {
    let mut program = Vec::new();
    compile_into(expr, size, &mut program);
    for index in (0..program.len()).rev() {
        let instruction: &Instruction = &program[index];
        let remembers = matches!(instruction.operation, Operation::Memory(..));
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

/// The value of what is the same for all entries.
fn constant(expr: &Expr, size: usize) -> Option<f64> {
    if !expr.is_constant() {
        return None;
    }
    match expr {
        Expr::Number(number) => Some(*number),
        Expr::Word(_) => Some(size as f64),
        Expr::Call(function, arguments) => {
            let values: Option<Vec<_>> = arguments.iter().map(|argument| constant(argument, size)).collect();
            function.of_numbers(&values?)
        }
    }
}

fn compile_into(expr: &Expr, size: usize, program: &mut Vec<Instruction>) -> Operand {
    if let Some(number) = constant(expr, size) {
        return Operand::Number(number as f32);
    }
    let (operation, arguments) = match expr {
        Expr::Number(number) => return Operand::Number(*number as f32),
        Expr::Word(word) => (Operation::Word(*word), vec![]),
        Expr::Call(Function::PooledMean, arguments) if arguments[0] == Expr::Word(Word::Attention) => {
            (Operation::PooledAttention, vec![])
        }
        Expr::Call(function @ (Function::Add | Function::Multiply), arguments) if arguments.len() > 2 => {
            // One after the other.
            let (last, before) = arguments.split_last().expect("there are more than two");
            let before = compile_into(&Expr::Call(*function, before.to_vec()), size, program);
            (Operation::Function(*function), vec![before, compile_into(last, size, program)])
        }
        Expr::Call(function, arguments) if function.remembers() => {
            let number = arguments.get(1).and_then(|number| constant(number, size)).unwrap_or(0.0);
            let number = if *function == Function::Ema { number } else { number.ceil() };
            (Operation::Memory(*function, number as f32), vec![compile_into(&arguments[0], size, program)])
        }
        Expr::Call(function, arguments) => {
            let arguments = arguments.iter().map(|argument| compile_into(argument, size, program)).collect();
            (Operation::Function(*function), arguments)
        }
    };
    let per_head = expr.is_per_head();
    let instruction = Instruction { operation, arguments, per_head, always: false };
    let index = program.iter().position(|other| *other == instruction).unwrap_or_else(|| {
        program.push(instruction);
        program.len() - 1
    });
    Operand::Result(index)
}
