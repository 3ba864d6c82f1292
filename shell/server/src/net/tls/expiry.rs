//! The end of a certificate's validity.
//!
//! Source: RFC 5280, 4.1 and 4.1.2.5; X.690, 8.1, for DER.

/// The tags of the two forms of a time: `YYMMDDHHMMSSZ` and `YYYYMMDDHHMMSSZ`.
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The tag of the version, the only optional field before the validity.
const VERSION: u8 = 0xa0;

/// The Unix time in seconds after which a certificate is invalid; `None` if that cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut fields, _) = element(certificate)?;
    if fields.first() == Some(&VERSION) {
        (_, _, fields) = element(fields)?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        (_, _, fields) = element(fields)?;
    }
    let (_, validity, _) = element(fields)?;
    let (_, _, validity) = element(validity)?;
    let (tag, time, _) = element(validity)?;
    let text = str::from_utf8(time).ok()?.strip_suffix('Z')?;
    let text = match tag {
        // RFC 5280: years from 50 on are in the last century.
        UTC_TIME if text >= "5" => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    unix_s(&text)
}

/// The first element of DER: its tag, its content, and the bytes behind it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        if length.len() > size_of::<u32>() {
            return None;
        }
        let add = |sum, byte: &u8| (sum << 8) | usize::from(*byte);
        (length.iter().fold(0, add), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The Unix time of `YYYYMMDDHHMMSS`.
fn unix_s(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(0, 4)?, part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    // A year that begins in March ends with the leap day. 306 days lie between March and the year's end.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year.checked_sub(1)?, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    // 1970-01-01 by the same count.
    let days = days.checked_sub(719_469)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn certificate(tag: u8, not_after: &str) -> Vec<u8> {
        let validity = [
            der(UTC_TIME, b"200101000000Z"),
            der(tag, not_after.as_bytes()),
        ];
        let fields = [
            der(VERSION, &[2, 1, 2]),
            vec![2, 1, 9],
            der(0x30, b""),
            der(0x30, &[0; 200]),
            der(0x30, &validity.concat()),
        ];
        der(0x30, &der(0x30, &fields.concat()))
    }

    #[test]
    fn validity_ends_as_the_certificate_says() {
        for (tag, text, unix_s) in [
            (UTC_TIME, "700101000001Z", 1),
            (UTC_TIME, "000229235959Z", 951_868_799),
            (UTC_TIME, "491231000000Z", 2_524_521_600),
            (GENERALIZED_TIME, "20500301120000Z", 2_529_748_800),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(not_after(&certificate(tag, text)), Some(unix_s), "{text}");
        }
    }

    #[test]
    fn damaged_certificates_have_no_end() {
        let whole = certificate(UTC_TIME, "300101000000Z");
        for length in 0..whole.len() {
            assert_eq!(not_after(&whole[..length]), None);
        }
        for text in [
            "300101000000",
            "3001010000Z",
            "30010100000xZ",
            "ü00101000000Z",
        ] {
            assert_eq!(not_after(&certificate(UTC_TIME, text)), None, "{text}");
        }
        assert_eq!(not_after(&certificate(0x13, "300101000000Z")), None);
    }
}
