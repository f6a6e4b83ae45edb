//! Values of Arrow's types as JSON, printed as Python prints them where JSON has no such type.
//!
//! Dates, times and decimals become the text that Python's `str` gives, which is what a template of lm-evaluation-harness shows;
//! floats that are not numbers become `nan` and `inf`. Inside lists and objects Python shows such values in another way, so they
//! are refused there, as are bytes.

use anyhow::{Context, Result, bail, ensure};
use chrono::NaiveDate;
use half::f16;
use polars_arrow::array::{
    Array, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray, PrimitiveArray, StructArray,
    Utf8ViewArray,
};
use polars_arrow::datatypes::{ArrowDataType as Type, TimeUnit};
use polars_arrow::types::NativeType;
use serde_json::{Map, Value};

/// Amount of text and number of values that may still be made from a file.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    bytes: usize,
    values: usize,
}

/// Largest number of bytes of text; values of a dictionary count each time they occur.
const MOST_TEXT: usize = 4 << 30;
const MOST_VALUES: usize = 1 << 26;

impl Default for Budget {
    fn default() -> Budget {
        Budget { bytes: MOST_TEXT, values: MOST_VALUES }
    }
}

impl Budget {
    fn take(&mut self, bytes: usize, values: usize) -> Result<()> {
        let left = self.bytes.checked_sub(bytes).zip(self.values.checked_sub(values));
        (self.bytes, self.values) = left.with_context(|| {
            format!("more than {MOST_TEXT} bytes of text or {MOST_VALUES} values are not read")
        })?;
        Ok(())
    }
}

/// Checks that a column's type has a form here.
///
/// # Errors
///
/// A type that cannot be shown.
pub(super) fn check(dtype: &Type) -> Result<()> {
    check_at(dtype, true)
}

/// Checks the type of a column, or with `is_outer` false of what its lists or objects hold.
fn check_at(dtype: &Type, is_outer: bool) -> Result<()> {
    use Type::*;
    let has_form = match dtype {
        Decimal(..) | Date32 | Time32(_) | Time64(_) | Duration(_) | Timestamp(..) if !is_outer => bail!(
            "it holds {dtype:?} inside lists or objects, where Python shows it as code; prepare the rows with it as text"
        ),
        Decimal(..) | Date32 | Time32(_) | Time64(_) | Duration(_) => true,
        // Other zones need a table of their times.
        Timestamp(_, zone) => zone.as_deref().is_none_or(is_utc),
        LargeList(inner) | FixedSizeList(inner, _) => return check_at(&inner.dtype, false),
        Struct(fields) => return fields.iter().try_for_each(|field| check_at(&field.dtype, false)),
        Dictionary(_, values, _) => is_plain_type(values),
        other => is_plain_type(other),
    };
    ensure!(
        has_form,
        "it holds {dtype:?}, which is neither text nor a number; prepare the rows without it, or as text"
    );
    Ok(())
}

fn is_plain_type(dtype: &Type) -> bool {
    use Type::*;
    let is_number = matches!(
        dtype,
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float16 | Float32 | Float64
    );
    is_number || matches!(dtype, Null | Boolean | Utf8View)
}

fn is_utc(zone: &str) -> bool {
    ["UTC", "Etc/UTC", "+00:00", "Z"].contains(&zone)
}

/// Adds the values of an array to `into`. `dtype` is a type that [`check`] accepts; the array has been read as its plain form.
pub(super) fn of_array(dtype: &Type, array: &dyn Array, budget: &mut Budget, into: &mut Vec<Value>) -> Result<()> {
    (0..array.len()).try_for_each(|at| {
        into.push(value(dtype, array, at, budget, true)?);
        Ok(())
    })
}

fn value(dtype: &Type, array: &dyn Array, at: usize, budget: &mut Budget, is_outer: bool) -> Result<Value> {
    budget.take(0, 1)?;
    if array.is_null(at) {
        return Ok(Value::Null);
    }
    let of = |number: f64| float(number, is_outer);
    Ok(match dtype {
        Type::Dictionary(_, values, _) => return value(values, array, at, budget, is_outer),
        Type::Null => Value::Null,
        Type::Boolean => as_type::<BooleanArray>(array)?.value(at).into(),
        Type::Int8 => number::<i8>(array, at)?.into(),
        Type::Int16 => number::<i16>(array, at)?.into(),
        Type::Int32 => number::<i32>(array, at)?.into(),
        Type::Int64 => number::<i64>(array, at)?.into(),
        Type::UInt8 => number::<u8>(array, at)?.into(),
        Type::UInt16 => number::<u16>(array, at)?.into(),
        Type::UInt32 => number::<u32>(array, at)?.into(),
        Type::UInt64 => number::<u64>(array, at)?.into(),
        Type::Float16 => {
            let bytes = as_type::<FixedSizeBinaryArray>(array)?.value(at);
            of(f64::from(f16::from_le_bytes(bytes.try_into()?)))?
        }
        Type::Float32 => of(f64::from(number::<f32>(array, at)?))?,
        Type::Float64 => of(number::<f64>(array, at)?)?,
        Type::Utf8View => {
            let text = as_type::<Utf8ViewArray>(array)?.value(at);
            budget.take(text.len(), 0)?;
            text.into()
        }
        Type::Decimal(_, scale) => decimal(number::<i128>(array, at)?, *scale).into(),
        Type::Date32 => date(i64::from(number::<i32>(array, at)?))?.to_string().into(),
        Type::Time32(unit) => time(i64::from(number::<i32>(array, at)?), *unit)?.into(),
        Type::Time64(unit) => time(number::<i64>(array, at)?, *unit)?.into(),
        Type::Timestamp(unit, zone) => {
            let text = moment(number::<i64>(array, at)?, *unit)?;
            if zone.is_some() { (text + "+00:00").into() } else { text.into() }
        }
        Type::Duration(unit) => duration(number::<i64>(array, at)?, *unit).into(),
        Type::LargeList(inner) => {
            let items = as_type::<ListArray<i64>>(array)?.value(at);
            list(&inner.dtype, &*items, budget)?
        }
        Type::FixedSizeList(inner, _) => {
            let items = as_type::<FixedSizeListArray>(array)?.value(at);
            list(&inner.dtype, &*items, budget)?
        }
        Type::Struct(fields) => {
            let mut object = Map::new();
            for (field, values) in fields.iter().zip(as_type::<StructArray>(array)?.values()) {
                budget.take(field.name.len(), 0)?;
                object.insert(field.name.to_string(), value(&field.dtype, &**values, at, budget, false)?);
            }
            object.into()
        }
        other => bail!("values of the type {other:?} have no form in JSON"),
    })
}

fn list(dtype: &Type, items: &dyn Array, budget: &mut Budget) -> Result<Value> {
    let items = (0..items.len()).map(|at| value(dtype, items, at, budget, false));
    Ok(Value::Array(items.collect::<Result<_>>()?))
}

fn as_type<A: 'static>(array: &dyn Array) -> Result<&A> {
    array.as_any().downcast_ref().context("it is stored as another type than it says")
}

fn number<T: NativeType>(array: &dyn Array, at: usize) -> Result<T> {
    Ok(as_type::<PrimitiveArray<T>>(array)?.value(at))
}

/// Number in JSON, or the text of a float that JSON does not have.
fn float(number: f64, is_outer: bool) -> Result<Value> {
    if number.is_finite() {
        return Ok(number.into());
    }
    ensure!(is_outer, "it holds {number} inside lists or objects, which JSON does not have");
    Ok(number.to_string().to_lowercase().into())
}

/// Text of `units` * 10^-`scale`, as Python's `decimal.Decimal` prints it.
fn decimal(units: i128, scale: usize) -> String {
    let (sign, digits) = (if units < 0 { "-" } else { "" }, units.unsigned_abs().to_string());
    let exponent = digits.len() as i64 - scale as i64 - 1;
    if exponent < -6 {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{sign}{first}{point}{rest}E{exponent}");
    }
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, part) = digits.split_at(digits.len() - scale);
    let point = if scale == 0 { "" } else { "." };
    format!("{sign}{whole}{point}{part}")
}

/// Date `days` after 1970-01-01, within the years that Python has.
fn date(days: i64) -> Result<NaiveDate> {
    let date = NaiveDate::from_ymd_opt(1970, 1, 1)
        .and_then(|first| first.checked_add_signed(chrono::Duration::try_days(days)?));
    let has_year = |date: &NaiveDate| (1..=9999).contains(&chrono::Datelike::year(date));
    date.filter(has_year).context("a date is before the year 1 or after 9999")
}

/// Number of units in a second, and nanoseconds of one unit.
fn unit(unit: TimeUnit) -> (i64, i64) {
    match unit {
        TimeUnit::Second => (1, 1_000_000_000),
        TimeUnit::Millisecond => (1_000, 1_000_000),
        TimeUnit::Microsecond => (1_000_000, 1_000),
        TimeUnit::Nanosecond => (1_000_000_000, 1),
    }
}

/// Digits behind the seconds: none, six, or all nine.
fn part(nanoseconds: i64) -> String {
    match (nanoseconds, nanoseconds % 1000) {
        (0, _) => String::new(),
        (all, 0) => format!(".{:06}", all / 1000),
        (all, _) => format!(".{all:09}"),
    }
}

/// Text of a date and time, as Python's `datetime.datetime` prints it, or pandas if there are nanoseconds.
fn moment(units: i64, of: TimeUnit) -> Result<String> {
    let day = 86_400 * unit(of).0;
    Ok(format!("{} {}", date(units.div_euclid(day))?, time(units.rem_euclid(day), of)?))
}

/// Text of a time of day, as Python's `datetime.time` prints it.
fn time(units: i64, of: TimeUnit) -> Result<String> {
    let (second, nanoseconds) = unit(of);
    let (seconds, rest) = (units.div_euclid(second), units.rem_euclid(second) * nanoseconds);
    ensure!((0..86_400).contains(&seconds), "a time of day is not within a day");
    Ok(format!("{:02}:{:02}:{:02}{}", seconds / 3600, seconds / 60 % 60, seconds % 60, part(rest)))
}

/// Text of a duration, as Python's `datetime.timedelta` prints it, or pandas if the unit is nanoseconds.
fn duration(units: i64, of: TimeUnit) -> String {
    let (second, nanoseconds) = unit(of);
    let (seconds, rest) = (units.div_euclid(second), units.rem_euclid(second) * nanoseconds);
    let (days, seconds) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (hours, clock) = (seconds / 3600, format!("{:02}:{:02}{}", seconds / 60 % 60, seconds % 60, part(rest)));
    match (of, days) {
        (TimeUnit::Nanosecond, _) => {
            let plus = if days < 0 { "+" } else { "" };
            format!("{days} days {plus}{hours:02}:{clock}")
        }
        (_, 0) => format!("{hours}:{clock}"),
        (_, 1 | -1) => format!("{days} day, {hours}:{clock}"),
        _ => format!("{days} days, {hours}:{clock}"),
    }
}
