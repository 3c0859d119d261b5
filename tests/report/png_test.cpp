// PNG files are read back by the format's own rules: chunks and their sums, zlib, the fixed codes of deflate, the filter.
#include "report/png.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "report/heat_png.h"
#include "trace_fixture.h"

namespace conclave {
namespace {

std::uint32_t u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  return value;
}

// Bit by bit, unlike the writer's table.
std::uint32_t slow_crc(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

class Inflate {
 public:
  explicit Inflate(std::string_view bytes) : bytes_(bytes) {}

  std::string run() {
    EXPECT_EQ(bits(1), 1U) << "the last block";
    EXPECT_EQ(bits(2), 1U) << "the fixed codes";
    std::string out;
    for (;;) {
      const int symbol = fixed_symbol();
      if (symbol < 256) {
        out += static_cast<char>(symbol);
        continue;
      }
      if (symbol == 256) return out;
      const int code = symbol - 257;
      const int extra = code < 8 || code == 28 ? 0 : code / 4 - 1;
      int length = code < 8 ? 3 + code : code == 28 ? 258 : 3 + ((4 + code % 4) << extra);
      length += static_cast<int>(bits(extra));
      if (code_bits(5) != 0 || out.empty()) {  // distance 1 is all that is used
        ADD_FAILURE() << "a distance that is not 1";
        return out;
      }
      out.append(static_cast<std::size_t>(length), out.back());
    }
  }
  std::size_t bytes_read() const { return (at_ + 7) / 8; }

 private:
  unsigned bit() {
    if (at_ / 8 >= bytes_.size()) throw std::runtime_error("deflate: past the end");
    const unsigned value = static_cast<unsigned char>(bytes_[at_ / 8]) >> (at_ % 8) & 1U;
    ++at_;
    return value;
  }
  unsigned bits(int n) {
    unsigned value = 0;
    for (int i = 0; i < n; ++i) value |= bit() << i;
    return value;
  }
  unsigned code_bits(int n) {
    unsigned value = 0;
    for (int i = 0; i < n; ++i) value = value << 1 | bit();
    return value;
  }
  int fixed_symbol() {
    unsigned code = code_bits(7);
    if (code <= 0x17) return static_cast<int>(256 + code);
    code = code << 1 | bit();
    if (code >= 0x30 && code <= 0xBF) return static_cast<int>(code - 0x30);
    if (code >= 0xC0 && code <= 0xC7) return static_cast<int>(280 + code - 0xC0);
    code = code << 1 | bit();
    return static_cast<int>(144 + code - 0x190);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

struct Decoded {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::string palette;
  std::string pixels;  // places in the palette
};

std::string unfiltered(const std::string& rows, std::size_t width, std::size_t height) {
  EXPECT_EQ(rows.size(), (width + 1) * height);
  std::string pixels(width * height, '\0');
  for (std::size_t y = 0; y < height; ++y) {
    EXPECT_EQ(rows[y * (width + 1)], 2) << "filter up";
    for (std::size_t x = 0; x < width; ++x) {
      const int above = y == 0 ? 0 : static_cast<unsigned char>(pixels[(y - 1) * width + x]);
      pixels[y * width + x] = static_cast<char>(above + rows[y * (width + 1) + 1 + x]);
    }
  }
  return pixels;
}

Decoded decode(std::string_view png) {
  Decoded image;
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  png.remove_prefix(8);
  std::string order;
  std::string zlib;
  while (png.size() >= 12) {
    const std::uint32_t length = u32(png);
    const std::string_view body = png.substr(4, 4 + length);
    const std::string_view data = body.substr(4);
    EXPECT_EQ(u32(png.substr(8 + length)), slow_crc(body));
    order += std::string(body.substr(0, 4)) + " ";
    if (body.starts_with("IHDR")) {
      image.width = u32(data);
      image.height = u32(data.substr(4));
      EXPECT_EQ(data.substr(8), std::string_view("\x08\x03\x00\x00\x00", 5));
    }
    if (body.starts_with("PLTE")) image.palette = data;
    if (body.starts_with("IDAT")) zlib += data;
    png.remove_prefix(12 + length);
  }
  EXPECT_TRUE(png.empty());
  EXPECT_EQ(order, "IHDR PLTE IDAT IEND ");
  EXPECT_EQ(u32(std::string(2, '\0') + zlib.substr(0, 2)) % 31, 0U);
  Inflate inflate(std::string_view(zlib).substr(2));
  const std::string rows = inflate.run();
  EXPECT_EQ(2 + inflate.bytes_read() + 4, zlib.size());
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const char c : rows) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  EXPECT_EQ(u32(std::string_view(zlib).substr(zlib.size() - 4)), b << 16 | a);
  image.pixels = unfiltered(rows, image.width, image.height);
  return image;
}

void expect_reads_back(const Picture& picture) {
  const Decoded image = decode(png_of(picture));
  EXPECT_EQ(image.width, static_cast<std::uint32_t>(picture.width));
  EXPECT_EQ(image.height, static_cast<std::uint32_t>(picture.height));
  EXPECT_EQ(image.palette.size(), 3 * picture.palette.size());
  EXPECT_TRUE(image.pixels == std::string(picture.pixels.begin(), picture.pixels.end()));
}

TEST(Png, ReadsBackWithRunsOfEveryLength) {
  Picture picture(700, 12, 0);
  for (int i = 0; i < 256; ++i) {
    const auto level = static_cast<std::uint8_t>(i);
    picture.palette.push_back({level, level, static_cast<std::uint8_t>(255 - i)});
  }
  // Runs of 1, 2, 3 ... pixels of changing colour, so that every length code comes up.
  std::size_t at = 0;
  for (std::size_t run = 1; at + run <= picture.pixels.size() - 700; ++run) {
    for (std::size_t i = 0; i < run; ++i) picture.pixels[at++] = static_cast<std::uint8_t>(run * 37);
  }
  expect_reads_back(picture);
}

TEST(Png, ReadsBackOnePixelAndNoise) {
  Picture one(1, 1, 0);
  one.palette = {{1, 2, 3}};
  expect_reads_back(one);
  Picture noise(97, 31, 0);
  noise.palette.assign(256, {});
  std::uint32_t state = 1;
  for (std::uint8_t& pixel : noise.pixels) {
    state = state * 1664525 + 1013904223;
    pixel = static_cast<std::uint8_t>(state >> 24);
  }
  expect_reads_back(noise);
}

TEST(Png, RefusesSidesThatCannotBe) {
  EXPECT_THROW(Picture(0, 5, 0), Error);
  EXPECT_THROW(Picture(5, -1, 0), Error);
  EXPECT_THROW(Picture(Picture::kMaxSide + 1, 5, 0), Error);
}

TEST(Picture, FillStaysInside) {
  Picture picture(4, 3, 9);
  picture.fill(-2, -2, 3, 3, 1);
  picture.fill(3, 2, 100, 100, 2);
  picture.fill(10, 10, 5, 5, 3);
  picture.fill(1, 1, -4, 5, 4);
  EXPECT_EQ(picture.pixels, (std::vector<std::uint8_t>{1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 2}));
}

// Cells have the colours of their loads: the busiest the end of the scale, never used its grey, in the right places.
TEST(HeatPng, CellsHaveTheColoursOfTheirLoads) {
  const RoutingTrace trace = test::small_trace();
  const Picture picture = heat_picture(trace, routing_stats(trace));
  const Decoded image = decode(png_of(picture));
  const auto colour_at = [&](std::size_t x, std::size_t y) {
    const auto place = static_cast<std::size_t>(static_cast<unsigned char>(image.pixels[y * image.width + x]));
    return Rgb{static_cast<std::uint8_t>(image.palette[3 * place]),
               static_cast<std::uint8_t>(image.palette[3 * place + 1]),
               static_cast<std::uint8_t>(image.palette[3 * place + 2])};
  };
  // The first pixel, from the top, of the busiest cell's colour: the corner of layer 1, expert 0.
  const Rgb most = ramp(1, Ground::light);
  std::optional<std::pair<std::size_t, std::size_t>> corner;
  for (std::size_t y = 0; y < image.height && !corner; ++y) {
    for (std::size_t x = 0; x < image.width && !corner; ++x) {
      if (colour_at(x, y) == most) corner = {x, y};
    }
  }
  ASSERT_TRUE(corner.has_value());
  const auto [x, y] = *corner;
  constexpr std::size_t kCellWidth = 44;
  constexpr std::size_t kCellHeight = 40;
  const Rgb grey = {236, 236, 240};
  EXPECT_EQ(colour_at(x + 20, y + 20), most);
  EXPECT_EQ(colour_at(x + kCellWidth + 20, y + 20), most);
  EXPECT_EQ(colour_at(x + 2 * kCellWidth + 20, y + 20), grey);
  EXPECT_EQ(colour_at(x + 3 * kCellWidth + 20, y + 20), grey);
  const Rgb even = colour_at(x + 20, y + kCellHeight + 20);
  EXPECT_NE(even, most);
  EXPECT_NE(even, grey);
  for (std::size_t e = 1; e < 4; ++e) EXPECT_EQ(colour_at(x + e * kCellWidth + 20, y + kCellHeight + 20), even);
}

TEST(HeatPng, AnySizeAndAnyName) {
  for (const auto& [n_layers, n_experts] : {std::pair{1, 1}, std::pair{100, 1024}, std::pair{3, 1000}}) {
    RoutingTrace trace = test::wheel_trace(n_layers, n_experts, 1, 5);
    trace.model = std::string(5000, 'x') + "\n\xff\u4e16";
    const Picture picture = heat_picture(trace, routing_stats(trace));
    EXPECT_LT(picture.width, 4000);
    EXPECT_LT(picture.height, 4000);
    if (n_layers < 100) expect_reads_back(picture);
  }
}

}  // namespace
}  // namespace conclave
