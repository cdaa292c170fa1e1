//! The three encoders, as readers. No other file names their crates.

use std::io::{self, Read};

use flate2::read::GzEncoder;

use super::{Coding, Levels};

/// How much a Brotli encoder reads from its source at once.
const BROTLI_BUFFER_BYTES: usize = 16 * 1024;

/// Log2 of Brotli's window, 512 KiB. This is the memory that a stream needs, and enough for pages.
const BROTLI_WINDOW: u32 = 19;

/// Returns a reader that compresses the output of `reader`. The result passes on errors of
/// `reader`.
pub(super) fn encoder(
    coding: Coding,
    levels: Levels,
    reader: Box<dyn Read + Send>,
) -> io::Result<Box<dyn Read + Send>> {
    Ok(match coding {
        Coding::Zstd => Box::new(zstd::stream::read::Encoder::new(reader, levels.zstd)?),
        Coding::Brotli => Box::new(brotli::CompressorReader::new(
            reader,
            BROTLI_BUFFER_BYTES,
            levels.brotli,
            BROTLI_WINDOW,
        )),
        Coding::Gzip => Box::new(GzEncoder::new(reader, flate2::Compression::new(levels.gzip))),
    })
}

#[cfg(test)]
mod tests {
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
