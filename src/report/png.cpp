#include "report/png.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/fail.h"

namespace conclave {
namespace {

void append_u32(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFF);
}

std::uint32_t crc32(std::string_view bytes) {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xEDB88320U ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::uint32_t adler32(std::string_view bytes) {
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

// Bits as deflate packs them: the first into the lowest place of a byte.
class BitWriter {
 public:
  void put(std::uint32_t bits, int count) {
    pending_ |= bits << filled_;  // at most 7 + 9 bits
    for (filled_ += count; filled_ >= 8; filled_ -= 8) {
      out_ += static_cast<char>(pending_ & 0xFF);
      pending_ >>= 8;
    }
  }
  // Huffman codes come highest bit first.
  void put_code(std::uint32_t code, int count) {
    std::uint32_t reversed = 0;
    for (int i = 0; i < count; ++i) reversed |= (code >> i & 1) << (count - 1 - i);
    put(reversed, count);
  }
  std::string finish() {
    if (filled_ > 0) out_ += static_cast<char>(pending_ & 0xFF);
    return std::move(out_);
  }

 private:
  std::string out_;
  std::uint32_t pending_ = 0;
  int filled_ = 0;
};

// RFC 1951, 3.2.6: the fixed code of a literal or a length.
void put_symbol(BitWriter& out, std::uint32_t symbol) {
  if (symbol < 144) {
    out.put_code(0x30 + symbol, 8);
  } else if (symbol < 256) {
    out.put_code(0x190 + symbol - 144, 9);
  } else if (symbol < 280) {
    out.put_code(symbol - 256, 7);
  } else {
    out.put_code(0xC0 + symbol - 280, 8);
  }
}

// `length` (3 .. 258) bytes more like the last one: a copy from distance 1.
void put_run(BitWriter& out, int length) {
  constexpr std::array<int, 29> kFirst = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                          31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
  const auto code = std::upper_bound(kFirst.begin(), kFirst.end(), length) - kFirst.begin() - 1;
  put_symbol(out, static_cast<std::uint32_t>(257 + code));
  const int extra_bits = code < 8 || code == 28 ? 0 : static_cast<int>(code / 4 - 1);
  out.put(static_cast<std::uint32_t>(length - kFirst[static_cast<std::size_t>(code)]), extra_bits);
  out.put_code(0, 5);  // distance 1
}

std::string zlib_of(std::string_view bytes) {
  BitWriter out;
  out.put(1, 1);  // the last block
  out.put(1, 2);  // of the fixed codes
  for (std::size_t i = 0; i < bytes.size();) {
    put_symbol(out, static_cast<unsigned char>(bytes[i]));
    std::size_t end = i + 1;
    while (end < bytes.size() && bytes[end] == bytes[i]) ++end;
    std::size_t run = end - i - 1;
    while (run >= 3) {
      const auto part = static_cast<int>(std::min<std::size_t>(run, 258));
      put_run(out, part);
      run -= static_cast<std::size_t>(part);
    }
    i = end - run;
  }
  put_symbol(out, 256);
  std::string zlib = {'\x78', '\x01'};
  zlib += out.finish();
  append_u32(zlib, adler32(bytes));
  return zlib;
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_u32(out, static_cast<std::uint32_t>(data.size()));
  std::string body(type);
  body += data;
  out += body;
  append_u32(out, crc32(body));
}

}  // namespace

Picture::Picture(int columns, int rows, std::uint8_t background) : width(columns), height(rows) {
  if (columns < 1 || rows < 1 || columns > kMaxSide || rows > kMaxSide) {
    fail(ErrorCode::unsupported, "a picture of {} by {} pixels cannot be made: each side is 1 to {}", columns, rows,
         kMaxSide);
  }
  pixels.assign(static_cast<std::size_t>(columns) * static_cast<std::size_t>(rows), background);
}

void Picture::fill(int x, int y, int columns, int rows, std::uint8_t colour) {
  const int left = std::clamp(x, 0, width);
  const int right = std::clamp(x + columns, left, width);
  const int bottom = std::clamp(y + rows, 0, height);
  for (int row = std::clamp(y, 0, height); row < bottom; ++row) {
    const auto begin = pixels.begin() + static_cast<std::ptrdiff_t>(row) * width;
    std::fill(begin + left, begin + right, colour);
  }
}

std::string png_of(const Picture& picture) {
  const auto width = static_cast<std::size_t>(picture.width);
  std::string rows;
  rows.reserve((width + 1) * static_cast<std::size_t>(picture.height));
  for (std::size_t y = 0; y < static_cast<std::size_t>(picture.height); ++y) {
    rows += '\x02';  // filter "up"
    for (std::size_t x = 0; x < width; ++x) {
      const int above = y == 0 ? 0 : picture.pixels[(y - 1) * width + x];
      rows += static_cast<char>(picture.pixels[y * width + x] - above);
    }
  }
  std::string header;
  append_u32(header, static_cast<std::uint32_t>(picture.width));
  append_u32(header, static_cast<std::uint32_t>(picture.height));
  header += {'\x08', '\x03', '\x00', '\x00', '\x00'};  // 8 bits, palette, deflate, adaptive filters, not interlaced
  std::string palette;
  for (const Rgb& c : picture.palette) {
    palette += {static_cast<char>(c.r), static_cast<char>(c.g), static_cast<char>(c.b)};
  }
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "PLTE", palette);
  append_chunk(png, "IDAT", zlib_of(rows));
  append_chunk(png, "IEND", "");
  return png;
}

}  // namespace conclave
