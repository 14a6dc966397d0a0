use std::time::Duration;

/// Reads `5s`, `250ms` or `1m 30s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("the duration is empty; write one such as `\"5s\"`".to_owned());
    }
    while !rest.is_empty() {
        let (digits, after) = split(rest, |c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(format!("`{text}` is not a duration such as `5s`, `250ms` or `1m 30s`"));
        }
        let (unit, after) = split(after, char::is_alphabetic);
        let one = match unit {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            "h" => Duration::from_hours(1),
            "" => return Err(format!("`{digits}` has no unit; use `ms`, `s`, `m` or `h`")),
            other => return Err(format!("there is no unit `{other}`; use `ms`, `s`, `m` or `h`")),
        };
        total = digits
            .parse()
            .ok()
            .and_then(|count| one.checked_mul(count))
            .and_then(|part| total.checked_add(part))
            .ok_or_else(|| format!("`{text}` is too long; write `\"none\"` for no limit"))?;
        rest = after.trim_start();
    }
    Ok(total)
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_add_up() {
        assert_eq!(parse("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse(" 1m 30s "), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h1ms"), Ok(Duration::from_millis(3_600_001)));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn the_rest_is_refused() {
        for text in ["", "5", "s", "5 s", "5sec", "-5s", "1.5s", "99999999999s", "5s x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
