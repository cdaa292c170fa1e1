//! The three encoders, as readers, and how much memory each of them takes: a client that reads
//! slowly keeps its encoder for long. No other file names their crates.

use std::io::{self, BufReader, Read};

use flate2::read::GzEncoder;
use zstd::zstd_safe::CParameter;

use super::{Coding, Levels};

/// How much the encoders of zstd and Brotli read from their source at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// Log2 of Brotli's window, 128 KiB. An encoder takes ten to twenty times its window: 2.2 MiB at
/// level 4, and 6.4 MiB with 512 KiB, whose output is 2 to 4 % shorter.
const BROTLI_WINDOW: u32 = 17;

/// Log2 of zstd's window, 256 KiB. At level 3, whose own window is 2 MiB, an encoder takes 1.5 MiB
/// instead of 3.5, and its output is 3.5 % longer; 128 KiB would make that 10 %. All decoders of
/// this coding accept 8 MiB (RFC 8878, 3.1.1.1.2; RFC 9659), which level 19 would use.
const ZSTD_WINDOW: u32 = 18;

/// Log2 of the number of entries of zstd's tables. The library fits them to the window only if the
/// length of the source is known. Otherwise those of level 19 would take 80 MiB, and be of little
/// use.
const fn zstd_tables(level: i32) -> Option<u32> {
    match level {
        // The tables of these levels are smaller anyway.
        ..=2 => None,
        3 => Some(16),
        _ => Some(18),
    }
}

/// Returns about how much memory an encoder takes while it waits, with its buffers. These are the
/// largest values measured, rounded up.
pub(super) fn encoder_bytes(coding: Coding, levels: Levels) -> usize {
    let kibibytes = match (coding, levels.zstd, levels.brotli) {
        (Coding::Zstd, ..=3, _) => 1600,
        (Coding::Zstd, ..=12, _) => 3200,
        (Coding::Zstd, ..) => 4000,
        (Coding::Brotli, _, ..=3) => 1300,
        (Coding::Brotli, _, 4) => 2250,
        (Coding::Brotli, _, 5) => 3000,
        (Coding::Brotli, _, 7) => 10_200,
        (Coding::Brotli, _, 8) => 18_400,
        (Coding::Brotli, _, 9) => 35_400,
        (Coding::Brotli, ..) => 4100,
        (Coding::Gzip, ..) => 410,
    };
    kibibytes * 1024
}

/// Returns a reader that compresses the output of `reader`. The result passes on errors of
/// `reader`.
pub(super) fn encoder(
    coding: Coding,
    levels: Levels,
    reader: Box<dyn Read + Send>,
) -> io::Result<Box<dyn Read + Send>> {
    Ok(match coding {
        Coding::Zstd => {
            let reader = BufReader::with_capacity(BUFFER_BYTES, reader);
            let mut encoder = zstd::stream::read::Encoder::with_buffer(reader, levels.zstd)?;
            for parameter in zstd_parameters(levels.zstd) {
                encoder.set_parameter(parameter)?;
            }
            Box::new(encoder)
        }
        Coding::Brotli => Box::new(brotli::CompressorReader::new(
            reader,
            BUFFER_BYTES,
            levels.brotli,
            BROTLI_WINDOW,
        )),
        Coding::Gzip => Box::new(GzEncoder::new(reader, flate2::Compression::new(levels.gzip))),
    })
}

/// Returns the parameters that differ from those of the level.
fn zstd_parameters(level: i32) -> impl Iterator<Item = CParameter> {
    let tables = zstd_tables(level).into_iter();
    let tables = tables.flat_map(|log| [CParameter::HashLog(log), CParameter::ChainLog(log)]);
    tables.chain([CParameter::WindowLog(ZSTD_WINDOW)])
}

#[cfg(test)]
mod tests {
    use zstd::stream::{raw, zio};
    use zstd::zstd_safe::CCtx;

    use super::*;

    const LEVELS: Levels = Levels { zstd: 3, brotli: 4, gzip: 6 };

    fn decode(coding: Coding, compressed: &[u8]) -> io::Result<Vec<u8>> {
        let mut decoded = Vec::new();
        match coding {
            Coding::Zstd => {
                zstd::stream::read::Decoder::new(compressed)?.read_to_end(&mut decoded)?
            }
            Coding::Brotli => {
                brotli::Decompressor::new(compressed, 4096).read_to_end(&mut decoded)?
            }
            Coding::Gzip => flate2::read::GzDecoder::new(compressed).read_to_end(&mut decoded)?,
        };
        Ok(decoded)
    }

    #[test]
    fn encoded_content_decodes_to_the_original() {
        let text: Vec<u8> =
            (0..200_000_u32).flat_map(|n| (n % 777).to_string().into_bytes()).collect();
        for coding in [Coding::Zstd, Coding::Brotli, Coding::Gzip] {
            for content in [&text[..], b"", b"a"] {
                let reader = Box::new(io::Cursor::new(content.to_vec()));
                let mut compressed = Vec::new();
                encoder(coding, LEVELS, reader).unwrap().read_to_end(&mut compressed).unwrap();
                assert_eq!(decode(coding, &compressed).unwrap(), content, "{coding:?}");
                assert!(content.len() < 10 || compressed.len() < content.len() / 5, "{coding:?}");
            }
        }
    }

    /// The library says how much memory its encoders take. The memory also depends on the content,
    /// but most of it is allocated at the start.
    #[test]
    fn an_encoder_of_zstd_takes_as_much_as_is_charged() {
        let text: Vec<u8> =
            (0..20_000_u64).flat_map(|n| (n * n).to_string().into_bytes()).collect();
        for level in [1, 2, 3, 4, 6, 9, 12, 13, 16, 19] {
            let mut context = CCtx::create();
            context.set_parameter(CParameter::CompressionLevel(level)).unwrap();
            for parameter in zstd_parameters(level) {
                context.set_parameter(parameter).unwrap();
            }
            let operation = raw::Encoder::with_context(&mut context);
            let mut reader = zio::Reader::new(&text[..], operation);
            io::copy(&mut reader, &mut io::sink()).unwrap();
            drop(reader);
            let (taken, charged) =
                (context.sizeof(), encoder_bytes(Coding::Zstd, Levels { zstd: level, ..LEVELS }));
            assert!(taken + BUFFER_BYTES <= charged, "level {level}: {taken} of {charged}");
            assert!(charged < taken * 3 / 2, "level {level}: {taken} of {charged}");
        }
    }

    /// The length of the window is in the head of the frame (RFC 8878, 3.1.1.1.2).
    #[test]
    fn the_window_of_zstd_is_short_at_each_level() {
        for level in [1, 3, 9, 19] {
            let reader = Box::new(io::repeat(b'a').take(3 << 20));
            let levels = Levels { zstd: level, ..LEVELS };
            let mut frame = [0; 6];
            encoder(Coding::Zstd, levels, reader).unwrap().read_exact(&mut frame).unwrap();
            assert_eq!(frame[..5], [0x28, 0xb5, 0x2f, 0xfd, 0], "no length, no checksum");
            assert_eq!(10 + u32::from(frame[5] >> 3), ZSTD_WINDOW, "level {level}");
        }
    }

    #[test]
    fn an_error_of_the_reader_is_not_swallowed() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the disk is gone"))
            }
        }
        for coding in [Coding::Zstd, Coding::Brotli, Coding::Gzip] {
            let reader = Box::new(io::Cursor::new("a".repeat(100_000)).chain(Broken));
            let result = encoder(coding, LEVELS, reader).unwrap().read_to_end(&mut Vec::new());
            assert_eq!(result.unwrap_err().to_string(), "the disk is gone", "{coding:?}");
        }
    }
}
