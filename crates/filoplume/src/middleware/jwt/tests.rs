//! Tokens that an attacker could make.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::EncodingKey;
use serde_json::json;

use super::*;

const SECRET: &str = "thirty-two bytes that are secret";
const HOUR: Duration = Duration::from_secs(3600);

/// Keys for these tests only.
const ED_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIHrL85SN4Km5NLNgb032PHVspjKbGi/Bu7Qd5nC9vyvt
-----END PRIVATE KEY-----
";
const ED_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAfWJw4NtIYNuS2oeSQoPFhNA1BinN/9pBi5S1I8Xwolk=
-----END PUBLIC KEY-----
";
const RSA_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAxydfcoPZKjGa47vy8Lz3
lDY0V8zlzFOYsWcSrcwMmn77r0rID+1JqAueyMHnoUeXSj2n9Rqw2PLMaNXtP7sq
ZqsXiFDipjwO4WjO2GZPvHFYJSuRdfE/izeWFDL9IejZ43/HESqBhC0qbRpA7OvX
125FPY8kODCslo9CJ++P5knj++FZYjYa7Ehvzvn0yKYfbm+5HZ7JmsNgJem0/TUQ
prp79umQv1lbXwYYo/Am6iPduK3TifpC6g3sj3sEhWCVYjfJFSKgS1TPJUs7ng8T
jca5F8gpdmVsfpkyMkfu6kDtOd1gfjz9T3Z7KAcISCJs6K/Hm53JDLYhC6u2HJOY
XwIDAQAB
-----END PUBLIC KEY-----
";

fn jwt() -> Jwt {
    Jwt::hs256(SECRET).expect("it is long enough")
}

/// Returns a token with these claims, signed with the secret.
fn signed(claims: &Value) -> String {
    provider::install();
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    encode(&Header::new(JwtAlgorithm::HS256), claims, &key).expect("it can be signed")
}

/// Returns a token with any head and any signature.
fn forged(head: &Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(head), part(claims))
}

fn seconds_from_now(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    i64::try_from(now.as_secs()).expect("it is before the end of time") + seconds
}

#[test]
fn no_token_expires_when_it_is_issued() {
    for lifetime in [Duration::ZERO, Duration::from_millis(999)] {
        let error = jwt().issue(&json!({"sub": "ada"}), lifetime).expect_err("it is too short");
        assert!(format!("{error:?}").contains("it would expire at once"), "{error:?}");
        let exp = seconds_from_now(60);
        assert!(jwt().issue(&json!({"sub": "ada", "exp": exp}), lifetime).is_ok());
    }
}

#[test]
fn a_token_has_the_claims_that_it_was_issued_with() {
    let jwt = jwt().issuer("me").audience("you");
    let token = jwt.issue(&json!({"sub": "ada"}), HOUR).expect("it can be signed");
    let claims = jwt.verify(&token).expect("it is valid");
    assert_eq!(
        (&claims["sub"], &claims["iss"], &claims["aud"]),
        (&json!("ada"), &json!("me"), &json!("you"))
    );
    assert!(
        claims["exp"]
            .as_i64()
            .is_some_and(|exp| (3590..=3600).contains(&(exp - seconds_from_now(0))))
    );
    assert!(jwt.issue(&"ada", HOUR).is_err(), "claims must be an object");
}

#[test]
fn claims_are_checked() {
    let exp = seconds_from_now(3600);
    let plain = jwt();
    let strict = jwt().issuer("me").audience("you").leeway(Duration::ZERO);
    for (jwt, claims, expected) in [
        (&plain, json!({"exp": exp}), None),
        (&plain, json!({}), Some(JwtError::Claim("exp".to_owned()))),
        (&plain, json!({"exp": "never"}), Some(JwtError::Claim("exp".to_owned()))),
        (&plain, json!({"exp": null}), Some(JwtError::Claim("exp".to_owned()))),
        (&plain, json!({"exp": -1}), Some(JwtError::Claim("exp".to_owned()))),
        (&plain, json!({"exp": seconds_from_now(-20)}), None),
        (&plain, json!({"exp": seconds_from_now(-40)}), Some(JwtError::Expired)),
        (&plain, json!({"exp": exp, "nbf": seconds_from_now(40)}), Some(JwtError::NotYetValid)),
        // RFC 7519, 4.1.3: the token has an audience, and none is set here.
        (&plain, json!({"exp": exp, "aud": "you"}), Some(JwtError::Audience)),
        (&strict, json!({"exp": exp, "iss": "me", "aud": ["they", "you"]}), None),
        (&strict, json!({"exp": exp, "iss": "me"}), Some(JwtError::Claim("aud".to_owned()))),
        (&strict, json!({"exp": exp, "aud": "you"}), Some(JwtError::Claim("iss".to_owned()))),
        (&strict, json!({"exp": exp, "iss": "you", "aud": "you"}), Some(JwtError::Issuer)),
        (&strict, json!({"exp": exp, "iss": "me", "aud": "they"}), Some(JwtError::Audience)),
        (
            &strict,
            json!({"exp": seconds_from_now(-20), "iss": "me", "aud": "you"}),
            Some(JwtError::Expired),
        ),
    ] {
        assert_eq!(jwt.verify(&signed(&claims)).err(), expected, "{claims}");
    }
    assert_eq!(plain.allow_without_expiry().verify(&signed(&json!({}))).err(), None);
}

#[test]
fn the_algorithm_is_that_of_the_key() {
    let claims = json!({"sub": "admin", "exp": seconds_from_now(3600)});
    for algorithm in ["none", "None", "", "HS999"] {
        for signature in ["", "AAAA"] {
            let token = forged(&json!({"alg": algorithm}), &claims, signature);
            assert_eq!(jwt().verify(&token).err(), Some(JwtError::Malformed), "{algorithm}");
        }
    }
    let sha512 = EncodingKey::from_secret(SECRET.as_bytes());
    let token =
        encode(&Header::new(JwtAlgorithm::HS512), &claims, &sha512).expect("it can be signed");
    assert_eq!(jwt().verify(&token).err(), Some(JwtError::Algorithm));
    // The public key, which is known to everybody, used as a secret.
    for (algorithm, public) in [(JwtAlgorithm::RS256, RSA_PUBLIC), (JwtAlgorithm::EdDSA, ED_PUBLIC)]
    {
        let jwt = Jwt::new(JwtKey::public_pem(algorithm, public).expect("it is a key"));
        let forged = encode(
            &Header::new(JwtAlgorithm::HS256),
            &claims,
            &EncodingKey::from_secret(public.as_bytes()),
        );
        assert_eq!(
            jwt.verify(&forged.expect("it can be signed")).err(),
            Some(JwtError::Algorithm),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_changed_or_truncated_token_is_not_valid() {
    let token = jwt().issue(&json!({"sub": "ada"}), HOUR).expect("it can be signed");
    assert_eq!(jwt().verify(&token).err(), None);
    for at in 0..token.len() {
        assert!(jwt().verify(&token[..at]).is_err(), "cut at {at}");
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("it is ASCII");
        assert!(jwt().verify(&changed).is_err(), "changed at {at}");
    }
    let other = Jwt::hs256("another secret of thirty-two bytes").expect("it is long enough");
    assert_eq!(other.verify(&token).err(), Some(JwtError::Signature));
    let long = signed(&json!({"exp": seconds_from_now(60), "a": "x".repeat(TOKEN_BYTES_MAX)}));
    assert_eq!(jwt().verify(&long).err(), Some(JwtError::Malformed));
    for junk in ["", ".", "..", "...", "a.b.c", "\u{e4}.\u{e4}.\u{e4}"] {
        assert_eq!(jwt().verify(junk).err(), Some(JwtError::Malformed), "{junk}");
    }
}

#[test]
fn an_unknown_critical_extension_is_refused() {
    // This also installs the provider without which `encode` panics.
    let jwt = jwt();
    let header = Header { crit: Some(vec!["b64".to_owned()]), ..Header::new(JwtAlgorithm::HS256) };
    let claims = json!({"exp": seconds_from_now(60)});
    let token = encode(&header, &claims, &EncodingKey::from_secret(SECRET.as_bytes()));
    assert_eq!(jwt.verify(&token.expect("it can be signed")).err(), Some(JwtError::Malformed));
}

#[test]
fn a_token_is_checked_with_the_key_that_it_names() {
    let key = |secret: &str| JwtKey::hs256(secret).expect("it is long enough");
    let (old, new) = ("the secret of last year, 32 bytes", "the secret of this year, 32 bytes");
    let before = Jwt::new(key(old).id("old"));
    let now = Jwt::new(key(new).id("new")).key(key(old).id("old"));
    let claims = json!({});
    for jwt in [&before, &now] {
        let token = jwt.issue(&claims, HOUR).expect("it can be signed");
        assert_eq!(now.verify(&token).err(), None);
    }
    // Signed with one key, but naming the other.
    let swapped = Jwt::new(key(old).id("new")).issue(&claims, HOUR).expect("it can be signed");
    assert_eq!(now.verify(&swapped).err(), Some(JwtError::Signature));
    let unknown = Jwt::new(key(old).id("older")).issue(&claims, HOUR).expect("it can be signed");
    assert_eq!(now.verify(&unknown).err(), Some(JwtError::UnknownKey));
    let unnamed = Jwt::new(key(old)).issue(&claims, HOUR).expect("it can be signed");
    assert_eq!(now.verify(&unnamed).err(), Some(JwtError::UnknownKey));
    // A single key without a name checks all tokens, because the issuer chooses the names.
    assert_eq!(Jwt::new(key(old)).verify(&unknown).err(), None);
}

#[test]
fn key_pairs_sign_and_check() {
    let pair = JwtKey::pair_pem(JwtAlgorithm::EdDSA, ED_PRIVATE, ED_PUBLIC).expect("they are keys");
    let token = Jwt::new(pair).issue(&json!({"sub": "ada"}), HOUR).expect("it can be signed");
    let public = Jwt::new(JwtKey::public_pem(JwtAlgorithm::EdDSA, ED_PUBLIC).expect("it is a key"));
    assert_eq!(public.verify(&token).expect("it is valid")["sub"], "ada");
    assert!(
        public.issue(&json!({}), HOUR).is_err_and(|error| error.to_string().contains("can sign"))
    );
}

#[test]
fn an_invalid_key_is_an_error_at_start_up() {
    let error = |key: Result<JwtKey>| key.map(drop).expect_err("it does not fit").to_string();
    assert!(error(JwtKey::hs256("short")).contains("openssl rand"));
    assert!(error(JwtKey::hs512(SECRET)).contains("64"));
    assert!(error(JwtKey::public_pem(JwtAlgorithm::HS256, RSA_PUBLIC)).contains("with a secret"));
    assert!(error(JwtKey::public_pem(JwtAlgorithm::RS256, ED_PUBLIC)).contains("RS256"));
    assert!(error(JwtKey::public_pem(JwtAlgorithm::ES256, "no key")).contains("ES256"));
}

#[test]
fn secrets_are_not_printed() {
    let printed = format!("{:?}", jwt());
    assert!(!printed.contains("secret") && !printed.contains("116"), "{printed}");
}

#[test]
fn a_token_with_an_audience_is_accepted_only_if_an_audience_is_set() {
    let exp = seconds_from_now(3600);
    for audience in [json!("you"), json!(["you"]), json!([]), json!(7), json!({"you": true})] {
        let token = signed(&json!({"exp": exp, "aud": audience}));
        assert_eq!(jwt().verify(&token), Err(JwtError::Audience), "{audience}");
    }
    assert!(jwt().verify(&signed(&json!({"exp": exp, "aud": null}))).is_ok(), "no audience");
}

#[test]
fn the_longest_leeway_is_one_day() {
    let jwt = jwt().leeway(Duration::MAX);
    assert!(jwt.verify(&signed(&json!({"exp": seconds_from_now(-23 * 3600)}))).is_ok());
    assert_eq!(
        jwt.verify(&signed(&json!({"exp": seconds_from_now(-25 * 3600)}))),
        Err(JwtError::Expired)
    );
}

#[test]
fn of_two_keys_without_names_none_is_that_of_a_token_without_a_name() {
    let other = || JwtKey::hs256("another secret of 32 or more bytes").unwrap();
    let token = jwt().issue(&json!({}), HOUR).unwrap();
    assert!(jwt().verify(&token).is_ok());
    assert_eq!(jwt().key(other()).verify(&token).unwrap_err(), JwtError::UnknownKey);
}

#[test]
fn a_secret_has_at_least_the_length_of_the_hash() {
    for (length, is_long_enough) in [(31, false), (32, true)] {
        assert_eq!(JwtKey::hs256(vec![7; length]).is_ok(), is_long_enough, "{length}");
    }
    for (length, is_long_enough) in [(63, false), (64, true)] {
        assert_eq!(JwtKey::hs512(vec![7; length]).is_ok(), is_long_enough, "{length}");
    }
}

#[test]
fn caches_learn_that_a_response_depends_on_an_optional_token() {
    let jwt = Jwt::hs256("a secret of 32 random bytes at least").unwrap().optional();
    let token = jwt.issue(&json!({"sub": "ada"}), Duration::from_secs(60)).unwrap();
    let client = crate::App::new().get("/", || ([("vary", "Accept")], "hi")).with(jwt).test();
    for request in [client.get("/"), client.get("/").bearer(&token)] {
        let response = request.send();
        response.assert_text("hi");
        let vary: Vec<_> = response.headers().get_all("vary").collect();
        let vary = String::from_utf8(vary.join(&b", "[..])).unwrap().to_lowercase();
        assert_eq!(vary, "accept, authorization");
    }
}
