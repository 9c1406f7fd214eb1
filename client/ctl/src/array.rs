//! An array on the command line: `path:dtype` for a scalar, `path:dtype:84x84` for anything else.

use echo_client::{ArraySpec, DType};

/// Reads an array. The path may have colons: what stands last is the shape, if it is no dtype.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse(text: &str) -> Result<ArraySpec, String> {
    const FORM: &str = "an array is PATH:DTYPE for a scalar or PATH:DTYPE:SHAPE, such as obs:float32:84x84";
    let (before, last) = text.rsplit_once(':').ok_or(FORM)?;
    if let Some(dtype) = DType::from_name(last) {
        return Ok(ArraySpec::new(before, dtype, []));
    }
    let Some((path, dtype)) = before.rsplit_once(':') else { return Err(unknown(last)) };
    let dtype = DType::from_name(dtype).ok_or_else(|| unknown(dtype))?;
    let lengths: Result<Vec<u64>, String> = last
        .split(['x', ','])
        .map(|length| {
            length.parse().map_err(|_| format!("{length:?} is no length in shape {last:?}, such as 84x84"))
        })
        .collect();
    Ok(ArraySpec::new(path, dtype, lengths?))
}

fn unknown(dtype: &str) -> String {
    let names = DType::ALL.map(DType::name).join(", ");
    format!("{dtype:?} is no dtype; these are: {names}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_with_and_without_a_shape() {
        assert_eq!(parse("reward:float32"), Ok(ArraySpec::new("reward", DType::F32, [])));
        assert_eq!(
            parse("obs/camera:uint8:84x84x3"),
            Ok(ArraySpec::new("obs/camera", DType::U8, [84, 84, 3]))
        );
        assert_eq!(parse("obs:bfloat16:4,2"), Ok(ArraySpec::new("obs", DType::BF16, [4, 2])));
        assert_eq!(parse("none:bool:0"), Ok(ArraySpec::new("none", DType::Bool, [0])));
        assert_eq!(parse("a:b:int8:2"), Ok(ArraySpec::new("a:b", DType::I8, [2])));
    }

    #[test]
    fn what_is_no_array_is_refused_with_the_reason() {
        for (text, reason) in [
            ("obs", "PATH:DTYPE:SHAPE"),
            ("obs:float", "\"float\" is no dtype; these are: bool, uint8"),
            ("obs:f32:4", "\"f32\" is no dtype"),
            ("obs:float32:4xx", "\"\" is no length in shape \"4xx\""),
            ("obs:float32:-1", "\"-1\" is no length"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
