//! `-Z` and `-o ssl_…`: how TLS is spoken.
//!
//! What is asked for and cannot be had is refused; what says only how fast something is to be (`ssl_wbuf_size`,
//! `ssl_kernel_tls`) is accepted with one warning. An option without `-Z` is refused: whoever gives it believes
//! that nobody can listen.
//!
//! Source: memcached 1.6.45 `tls.c`, `ssl_help`; `memcached.c`, `main`.

use std::path::PathBuf;

use latchd_server::{ClientCertificate, KeyFormat, TlsSettings, TlsVersion};

/// What the options of `-o` say about TLS.
#[derive(Debug, Default)]
pub(super) struct TlsOptions {
    /// The first of them.
    given: Option<String>,
    chain_cert: Option<PathBuf>,
    key: Option<PathBuf>,
    key_format: KeyFormat,
    ca_cert: Option<PathBuf>,
    client_certificate: ClientCertificate,
    min_version: TlsVersion,
    ciphers: Option<Vec<String>>,
    session_cache: bool,
}

impl TlsOptions {
    /// Takes one option, if it is about TLS; whether it is.
    ///
    /// # Errors
    /// There is no such option, or it has a value that it cannot have; a sentence for a person.
    pub(super) fn take(&mut self, option: &str, ignored: &mut Vec<String>) -> Result<bool, String> {
        let (name, value) = option
            .split_once('=')
            .map_or((option, None), |(name, value)| (name, Some(value)));
        if !name.starts_with("ssl_") {
            return Ok(false);
        }
        let path = || match value {
            None | Some("") => Err(format!("-o {name} needs a path")),
            Some(path) => Ok(Some(PathBuf::from(path))),
        };
        match name {
            "ssl_chain_cert" => self.chain_cert = path()?,
            "ssl_key" => self.key = path()?,
            "ssl_ca_cert" => self.ca_cert = path()?,
            "ssl_keyformat" => {
                self.key_format = match value {
                    Some("1") => KeyFormat::Pem,
                    Some("2") => KeyFormat::Der,
                    Some(_) | None => return Err(format!("-o {name}: 1 is PEM, 2 is DER")),
                }
            }
            "ssl_verify_mode" => {
                self.client_certificate = match value {
                    Some("0") => ClientCertificate::Unasked,
                    Some("1") => ClientCertificate::Asked,
                    // "Once" is about renegotiation, which there is not.
                    Some("2" | "3") => ClientCertificate::Required,
                    Some(_) | None => {
                        return Err(format!(
                            "-o {name}: 0 asks clients for no certificate, 1 asks, 2 insists"
                        ));
                    }
                }
            }
            "ssl_min_version" => {
                self.min_version = match value {
                    Some("0" | "1") => {
                        ignored.push(format!(
                            "-o {name} below 2 (TLS 1.2 is the oldest there is)"
                        ));
                        TlsVersion::V1_2
                    }
                    Some("2") => TlsVersion::V1_2,
                    Some("3") => TlsVersion::V1_3,
                    Some(_) | None => {
                        return Err(format!("-o {name}: 2 is TLS 1.2, 3 is TLS 1.3"));
                    }
                }
            }
            "ssl_ciphers" => match value {
                None | Some("") => {
                    return Err(format!("-o {name} needs names, as OpenSSL has them"));
                }
                Some(names) => {
                    self.ciphers = Some(names.split(':').map(ToOwned::to_owned).collect());
                }
            },
            "ssl_session_cache" => self.session_cache = true,
            "ssl_wbuf_size" | "ssl_kernel_tls" => ignored.push(format!("-o {name}")),
            _ => return Err(format!("-o {name}: no such option")),
        }
        self.given.get_or_insert_with(|| name.to_owned());
        Ok(true)
    }

    /// What they come to, with `-Z` or without.
    ///
    /// # Errors
    /// One is missing, or too much; a sentence for a person.
    pub(super) fn finish(self, is_enabled: bool) -> Result<Option<TlsSettings>, String> {
        if !is_enabled {
            return match self.given {
                None => Ok(None),
                Some(name) => Err(format!("-o {name} is for a server with TLS: add -Z")),
            };
        }
        let chain_cert = self.chain_cert.ok_or(
            "-Z: nobody says who the server is; add -o ssl_chain_cert=PATH and, if it is not in the \
             same file, -o ssl_key=PATH",
        )?;
        let mut settings = TlsSettings::new(chain_cert);
        settings.key = self.key;
        settings.key_format = self.key_format;
        settings.ca_cert = self.ca_cert;
        settings.client_certificate = self.client_certificate;
        settings.min_version = self.min_version;
        settings.ciphers = self.ciphers;
        settings.session_cache = self.session_cache;
        Ok(Some(settings))
    }
}
