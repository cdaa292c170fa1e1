//! The certificate of a client, as a handler parameter.

use std::error::Error as StdError;
use std::fmt;

use filoplume_runtime::{Request, StatusCode};
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::{ExtractOptional, FromRequest, Rejection};
use crate::core::context::Context;
use crate::core::error::Error;

/// The attribute type of a common name (RFC 5280, appendix A).
const COMMON_NAME: &str = "2.5.4.3";

/// The certificate that the client presented in its TLS handshake. It is verified: one of the
/// authorities of [`Tls::required_client_certificates`](crate::Tls::required_client_certificates)
/// or [`optional_client_certificates`](crate::Tls::optional_client_certificates) has issued it for
/// the authentication of clients, and the client has its key.
///
/// Whether this client may do what it asks for is up to the handler. A client without a certificate
/// is refused with `403`; `Option<ClientCertificate>` is `None` then.
///
/// ```no_run
/// use filoplume::prelude::*;
/// use filoplume::{ClientCertificate, Tls};
///
/// fn main() -> filoplume::Result<()> {
///     let tls = Tls::from_pem_files("cert.pem", "key.pem")
///         .required_client_certificates("clients-ca.pem");
///     App::new()
///         .get("/", |client: ClientCertificate| match client.common_name() {
///             Some(name) => format!("Hello, {name}!"),
///             None => format!("Hello, {}!", client.subject()),
///         })
///         .listen_tls("0.0.0.0:443", tls)
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    der: Vec<u8>,
    certificate: Box<Certificate>,
}

impl ClientCertificate {
    fn of(request: &Request) -> Result<Option<Self>, ClientCertificateRejection> {
        let Some(der) = request.tls().and_then(|tls| tls.client_certificate()) else {
            return Ok(None);
        };
        let certificate =
            Certificate::from_der(der).map_err(|_| ClientCertificateRejection::Unreadable)?;
        Ok(Some(Self { der: der.to_vec(), certificate: Box::new(certificate) }))
    }

    /// Returns the whole certificate, in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the subject, such as `CN=alice,O=Example` (RFC 4514).
    pub fn subject(&self) -> String {
        self.certificate.tbs_certificate.subject.to_string()
    }

    /// Returns the issuer, in the same form.
    pub fn issuer(&self) -> String {
        self.certificate.tbs_certificate.issuer.to_string()
    }

    /// Returns the serial number, in hexadecimal digits. It is unique for its issuer.
    pub fn serial_number(&self) -> String {
        hexadecimal(self.certificate.tbs_certificate.serial_number.as_bytes())
    }

    /// Returns the first common name of the subject.
    pub fn common_name(&self) -> Option<String> {
        let names = self.certificate.tbs_certificate.subject.0.iter();
        let attribute = names
            .flat_map(|name| name.0.iter())
            .find(|attribute| attribute.oid.to_string() == COMMON_NAME)?;
        let value = &attribute.value;
        let text = match value.tag() {
            Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str().to_owned(),
            Tag::PrintableString => {
                value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned()
            }
            Tag::TeletexString => {
                value.decode_as::<TeletexStringRef<'_>>().ok()?.as_str().to_owned()
            }
            _ => return None,
        };
        Some(text)
    }

    /// Returns the DNS names among the subject's alternative names.
    pub fn dns_names(&self) -> Vec<String> {
        self.names(dns_name)
    }

    /// Returns the mail addresses among the subject's alternative names.
    pub fn emails(&self) -> Vec<String> {
        self.names(email)
    }

    /// Returns the URIs among the subject's alternative names, such as a SPIFFE ID.
    pub fn uris(&self) -> Vec<String> {
        self.names(uri)
    }

    fn names(&self, of: impl Fn(&GeneralName) -> Option<&str>) -> Vec<String> {
        let names = self.certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
        let names = names.map(|(_, names)| names.0).unwrap_or_default();
        names.iter().filter_map(of).map(str::to_owned).collect()
    }
}

impl FromRequest for ClientCertificate {
    type Rejection = ClientCertificateRejection;

    fn from_request(
        request: &mut Request,
        _: &Context<'_>,
    ) -> Result<Self, ClientCertificateRejection> {
        Self::of(request)?.ok_or(ClientCertificateRejection::Missing)
    }
}

/// Returns `None` if the client presented no certificate.
impl ExtractOptional for ClientCertificate {
    fn extract_optional(
        request: &mut Request,
        _: &Context<'_>,
    ) -> Result<Option<Self>, ClientCertificateRejection> {
        Self::of(request)
    }
}

/// The error if a client has no usable certificate.
///
/// ```
/// use filoplume::ClientCertificate;
/// use filoplume::prelude::*;
///
/// let app = App::new().get("/", |client: ClientCertificate| client.subject());
/// app.test().get("/").send().assert_status(403);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientCertificateRejection {
    /// The client presented none.
    Missing,
    /// The certificate is valid for TLS, but its content cannot be read.
    Unreadable,
}

impl fmt::Display for ClientCertificateRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "a client certificate is required",
            Self::Unreadable => "the client certificate cannot be read",
        })
    }
}

impl StdError for ClientCertificateRejection {}

impl Rejection for ClientCertificateRejection {
    fn describe(&self) -> Error {
        Error::new(StatusCode::FORBIDDEN, self.to_string())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn dns_name(name: &GeneralName) -> Option<&str> {
    if let GeneralName::DnsName(name) = name { Some(name.as_str()) } else { None }
}

fn email(name: &GeneralName) -> Option<&str> {
    if let GeneralName::Rfc822Name(name) = name { Some(name.as_str()) } else { None }
}

fn uri(name: &GeneralName) -> Option<&str> {
    if let GeneralName::UniformResourceIdentifier(name) = name { Some(name.as_str()) } else { None }
}

#[cfg(test)]
mod tests {
    use x509_cert::der::asn1::Ia5String;

    use super::*;

    #[test]
    fn each_byte_of_a_serial_number_has_two_digits() {
        assert_eq!(hexadecimal(&[0, 0x0a, 0xff]), "000aff");
    }

    #[test]
    fn names_are_told_apart_by_their_kind() {
        let text = |text: &str| Ia5String::new(text).expect("it is ASCII");
        let rows = [
            (GeneralName::DnsName(text("a.example")), [Some("a.example"), None, None]),
            (GeneralName::Rfc822Name(text("a@b.example")), [None, Some("a@b.example"), None]),
            (GeneralName::UniformResourceIdentifier(text("spiffe://a")), {
                [None, None, Some("spiffe://a")]
            }),
        ];
        for (name, expected) in &rows {
            assert_eq!([dns_name(name), email(name), uri(name)], *expected);
        }
    }

    #[test]
    fn a_client_without_a_valid_certificate_is_forbidden() {
        for rejection in
            [ClientCertificateRejection::Missing, ClientCertificateRejection::Unreadable]
        {
            assert_eq!(rejection.describe().status(), StatusCode::FORBIDDEN, "{rejection}");
        }
    }
}
