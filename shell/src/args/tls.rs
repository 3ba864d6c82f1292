//! `-Z` and `-o ssl_…`: the settings of TLS.
//!
//! An option that cannot be fulfilled is refused. An option that only affects speed (`ssl_wbuf_size`,
//! `ssl_kernel_tls`) is accepted with one warning. An option without `-Z` is refused, because its operator expects
//! an encrypted port.
//!
//! Source: memcached 1.6.45 `tls.c`, `ssl_help`; `memcached.c`, `main`.

use std::path::PathBuf;

use latchd_server::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};

/// The options of `-o` about TLS.
#[derive(Debug)]
pub(super) struct TlsOptions {
    /// The first option that was given.
    given: Option<String>,
    /// The path of the certificates is empty until it is given.
    settings: TlsSettings,
}

impl TlsOptions {
    pub(super) fn new() -> Self {
        Self {
            given: None,
            settings: TlsSettings::new(PathBuf::new()),
        }
    }

    /// Applies one option if it is about TLS. Returns whether it is.
    ///
    /// # Errors
    /// A message for the operator, if the option does not exist or its value is wrong.
    pub(super) fn take(&mut self, option: &str, ignored: &mut Vec<String>) -> Result<bool, String> {
        let (name, value) = option
            .split_once('=')
            .map_or((option, None), |(name, value)| (name, Some(value)));
        if !name.starts_with("ssl_") {
            return Ok(false);
        }
        let path = || match value {
            None | Some("") => Err(format!("-o {name}: expected a path, as in {name}=PATH")),
            Some(path) => Ok(PathBuf::from(path)),
        };
        let settings = &mut self.settings;
        match name {
            "ssl_chain_cert" => settings.chain_cert = path()?,
            "ssl_key" => settings.key = Some(path()?),
            "ssl_ca_cert" => settings.ca_cert = Some(path()?),
            "ssl_keyformat" => {
                settings.key_format = match value {
                    Some("1") => KeyFormat::Pem,
                    Some("2") => KeyFormat::Der,
                    Some(_) | None => {
                        return Err(format!("-o {name}: expected 1 (PEM) or 2 (DER)"));
                    }
                }
            }
            "ssl_verify_mode" => {
                settings.client_certificate = match value {
                    Some("0") => ClientCertificate::Unasked,
                    Some("1") => ClientCertificate::Asked,
                    // 3 differs from 2 only in renegotiation, which rustls does not have.
                    Some("2" | "3") => ClientCertificate::Required,
                    Some(_) | None => {
                        return Err(format!(
                            "-o {name}: expected 0 (no client certificate), 1 (optional) or 2 (required)"
                        ));
                    }
                }
            }
            "ssl_min_version" => {
                settings.min_version = match value {
                    Some("0" | "1") => {
                        ignored.push(format!(
                            "-o {name} below 2 (TLS 1.2 is the oldest supported version)"
                        ));
                        TlsVersion::V1_2
                    }
                    Some("2") => TlsVersion::V1_2,
                    Some("3") => TlsVersion::V1_3,
                    Some(_) | None => {
                        return Err(format!("-o {name}: expected 2 (TLS 1.2) or 3 (TLS 1.3)"));
                    }
                }
            }
            "ssl_ciphers" => match value {
                None | Some("") => {
                    return Err(format!(
                        "-o {name}: expected OpenSSL names separated by colons"
                    ));
                }
                Some(names) => {
                    settings.ciphers = Some(names.split(':').map(ToOwned::to_owned).collect());
                }
            },
            "ssl_session_cache" => settings.session_cache = true,
            "ssl_wbuf_size" | "ssl_kernel_tls" => ignored.push(format!("-o {name}")),
            _ => {
                return Err(format!(
                    "-o {name}: unknown option; see -o in `latchd --help`"
                ));
            }
        }
        self.given.get_or_insert_with(|| name.to_owned());
        Ok(true)
    }

    /// The settings that the options give, with or without `-Z`.
    ///
    /// # Errors
    /// A message for the operator, if an option is missing, or given without `-Z`.
    pub(super) fn finish(self, is_enabled: bool) -> Result<Option<TlsSettings>, String> {
        if !is_enabled {
            return match self.given {
                None => Ok(None),
                Some(name) => Err(format!("-o {name}: requires TLS; add -Z")),
            };
        }
        if self.settings.chain_cert.as_os_str().is_empty() {
            return Err(
                "-Z: the server has no certificate; add -o ssl_chain_cert=PATH and, if the key is in another \
                 file, -o ssl_key=PATH"
                    .into(),
            );
        }
        Ok(Some(self.settings))
    }
}
