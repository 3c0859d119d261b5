#include "bench/kernels/weight_pile.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/fail.h"
#include "base/file_text.h"
#include "bench/kernels/random_blocks.h"

namespace conclave::bench {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& folder, const char* action) {
  fail(ErrorCode::io, "{}: cannot {} the weights to benchmark with: {}; --scratch names another folder",
       printable(folder.native()), action, std::strerror(errno));
}

void require_space(const PileRequest& request) {
  struct statvfs space {};
  if (::statvfs(request.folder.c_str(), &space) != 0) refuse(request.folder, "write");
  const double free = static_cast<double>(space.f_bavail) * static_cast<double>(space.f_frsize);
  constexpr double kMargin = 64 << 20;
  if (free >= static_cast<double>(request.bytes) + kMargin) return;
  fail(
      ErrorCode::io,
      "{}: {:.1f} GiB are needed for the weights to benchmark with and {:.1f} are free; --scratch names another folder",
      printable(request.folder.native()), static_cast<double>(request.bytes) / (1 << 30), free / (1 << 30));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The name is gone before the first byte is written: an interrupt leaves nothing behind.
int open_nameless(const std::filesystem::path& folder) {
  std::string name = (folder / "conclave-bench-XXXXXX").string();
  const int fd = ::mkstemp(name.data());
  if (fd < 0) refuse(folder, "create");
  ::unlink(name.c_str());
  return fd;
}

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& folder) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(folder, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

MappedFile random_file(const PileRequest& request) {
  require_space(request);
  const Descriptor file(open_nameless(request.folder));
  const std::int64_t unit = pile_alignment(request.type);
  constexpr std::int64_t kPart = 4 << 20;
  std::vector<std::byte> part(static_cast<std::size_t>(std::max(kPart / unit, std::int64_t{1}) * unit));
  test::Rng rng(request.seed);
  for (std::int64_t left = (request.bytes + unit - 1) / unit * unit; left > 0;) {
    const std::span<std::byte> now(part.data(), std::min(part.size(), static_cast<std::size_t>(left)));
    random_blocks(request.type, now, kWeightSize, rng);
    write_all(file.get(), now, request.folder);
    left -= static_cast<std::int64_t>(now.size());
  }
  // On disk before anything is timed: writing back would take bandwidth from the runs.
  if (::fsync(file.get()) != 0) refuse(request.folder, "write");
#if defined(__linux__)
  const char* const open_files = "/proc/self/fd";
#else
  const char* const open_files = "/dev/fd";
#endif
  return MappedFile::open(fmt::format("{}/{}", open_files, file.get()));
}

}  // namespace

WeightPile::WeightPile(const PileRequest& request) : type_(request.type), file_(random_file(request)) {
  const std::span<const std::byte> mapped = file_.map();
  // Page tables are filled here, once; a const pointer, as nothing may write to weights.
  constexpr std::size_t kPage = 4096;
  std::uint8_t sum = 0;
  for (std::size_t at = 0; at < mapped.size(); at += kPage) sum ^= static_cast<std::uint8_t>(mapped[at]);
  const volatile std::uint8_t sink = sum;
  static_cast<void>(sink);
  buffer_ = std::make_unique<BorrowedBuffer>(const_cast<std::byte*>(mapped.data()), size());
}

Tensor WeightPile::view(std::int64_t offset, const Dims& dims) const {
  return dense(*buffer_, offset, type_, dims);
}

std::int64_t pile_alignment(DType type) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t common = std::gcd(dtype_info(type).bytes, kLine);
  return dtype_info(type).bytes * (kLine / std::max<std::int64_t>(common, 1));
}

std::int64_t aligned_bytes(DType type, const Dims& dims) {
  const std::int64_t unit = pile_alignment(type);
  return (dense_bytes(type, dims) + unit - 1) / unit * unit;
}

}  // namespace conclave::bench
