// Apple's GPU through Metal. The only file that needs their headers, and the only one that Linux does not build: it was
// written from the documentation, and the README says who has compiled it so far.
//
// Metal's own objects stay in here. Memory is shared between host and GPU; a command buffer is opened by the first dispatch
// and has one encoder, whose kernels overlap until a barrier.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "backends/metal/gpu.h"
#include "base/fail.h"

namespace conclave::metal {

extern const char* const kKernelSource;  // all kernels as one text: cmake/flatten_kernels.cmake

namespace {

std::string text_of(NSString* text) {
  return text == nil ? std::string("no reason was given") : std::string(text.UTF8String);
}
std::string text_of(NSError* error) {
  return error == nil ? std::string("no reason was given") : text_of(error.localizedDescription);
}

class AppleBuffer final : public Buffer {
 public:
  AppleBuffer(id<MTLBuffer> buffer, std::int64_t bytes)
      : Buffer(static_cast<std::byte*>(buffer.contents), bytes), buffer_(buffer) {}
  id<MTLBuffer> get() const { return buffer_; }

 private:
  id<MTLBuffer> buffer_;
};

class AppleGpu final : public Gpu {
 public:
  explicit AppleGpu(id<MTLDevice> device)
      : device_(device), queue_([device newCommandQueue]), name_(text_of(device.name)) {
    if (queue_ == nil) fail(ErrorCode::device_failed, "metal: {} gives no command queue", name_);
    nothing_ = [device newBufferWithLength:256 options:MTLResourceStorageModeShared];
    load_library();
  }

  std::string_view name() const override { return name_; }

  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override {
    // Metal clears what it gives. It has no buffers of nothing.
    id<MTLBuffer> made = [device_ newBufferWithLength:static_cast<NSUInteger>(std::max<std::int64_t>(bytes, 16))
                                              options:MTLResourceStorageModeShared];
    if (made == nil) fail(ErrorCode::out_of_memory, "metal: {} has no {} bytes", name_, bytes);
    return std::make_shared<AppleBuffer>(made, bytes);
  }

  std::optional<std::int64_t> available_bytes() const override {
    const auto most = static_cast<std::int64_t>(device_.recommendedMaxWorkingSetSize);
    return std::max<std::int64_t>(most - static_cast<std::int64_t>(device_.currentAllocatedSize), 0);
  }

  bool reaches(const Buffer& buffer) const override {
    return dynamic_cast<const AppleBuffer*>(&buffer) != nullptr || can_map(buffer);
  }

  bool has_device_fence() const override { return has_device_fence_; }

  std::uint32_t max_threads(const void* pipeline) const override {
    return static_cast<std::uint32_t>(((__bridge id<MTLComputePipelineState>)pipeline).maxTotalThreadsPerThreadgroup);
  }

  const void* pipeline(std::string_view kernel) override {
    const std::string key(kernel);
    if (const auto found = pipelines_.find(key); found != pipelines_.end()) return (__bridge const void*)found->second;
    id<MTLFunction> function = [library_ newFunctionWithName:@(key.c_str())];
    if (function == nil) fail(ErrorCode::device_failed, "metal: there is no kernel '{}'", key);
    NSError* error = nil;
    id<MTLComputePipelineState> made = [device_ newComputePipelineStateWithFunction:function error:&error];
    if (made == nil) fail(ErrorCode::device_failed, "metal: kernel '{}': {}", key, text_of(error));
    if (made.threadExecutionWidth != kSimdWidth) {
      fail(ErrorCode::unsupported, "metal: {} has simdgroups of {} threads, {} are needed", name_,
           static_cast<unsigned long>(made.threadExecutionWidth), static_cast<int>(kSimdWidth));
    }
    pipelines_[key] = made;
    return (__bridge const void*)made;
  }

  void dispatch(const Encoded& kernel) override {
    @autoreleasepool {
      id<MTLComputeCommandEncoder> encoder = open_encoder();
      [encoder setComputePipelineState:(__bridge id<MTLComputePipelineState>)kernel.pipeline];
      [encoder setBytes:kernel.args.data() length:kernel.args.size() atIndex:0];
      for (std::size_t i = 0; i < kMaxBuffers; ++i) bind(encoder, kernel.bindings[i], i + 1);
      [encoder setThreadgroupMemoryLength:std::max(kernel.shared_bytes, 16U) atIndex:0];  // every kernel has some
      const MTLSize threads = MTLSizeMake(kernel.threads, 1, 1);
      if (kernel.indirect) {
        [encoder dispatchThreadgroupsWithIndirectBuffer:metal_buffer(*kernel.indirect->buffer)
                                   indirectBufferOffset:static_cast<NSUInteger>(kernel.indirect->begin)
                                  threadsPerThreadgroup:threads];
      } else {
        [encoder dispatchThreadgroups:MTLSizeMake(kernel.groups.x, kernel.groups.y, kernel.groups.z)
                threadsPerThreadgroup:threads];
      }
    }
  }

  void barrier() override {
    if (encoder_ != nil) [encoder_ memoryBarrierWithScope:MTLBarrierScopeBuffers];
  }

  void commit() override {
    if (encoder_ == nil) return;
    [encoder_ endEncoding];
    [commands_ commit];
    encoder_ = nil;
    running_ = commands_;
    commands_ = nil;
  }

  void wait() override {
    if (running_ == nil) return;
    [running_ waitUntilCompleted];  // command buffers of one queue end in order
    const bool failed = running_.status == MTLCommandBufferStatusError;
    const std::string reason = failed ? text_of(running_.error) : std::string();
    running_ = nil;
    if (failed) fail(ErrorCode::device_failed, "metal: {}: {}", name_, reason);
  }

 private:
  void load_library() {
    NSError* error = nil;
#ifdef CONCLAVE_METALLIB
    library_ = [device_ newLibraryWithURL:[NSURL fileURLWithPath:@CONCLAVE_METALLIB] error:&error];
    if (library_ == nil) fail(ErrorCode::device_failed, "metal: {}: {}", CONCLAVE_METALLIB, text_of(error));
    if (@available(macOS 15.0, *)) has_device_fence_ = true;
#else
    MTLCompileOptions* options = [MTLCompileOptions new];
    // docs/numerics.md: division is IEEE's, and nothing is contracted.
    if (@available(macOS 15.0, *)) {
      options.mathMode = MTLMathModeSafe;
      options.languageVersion = MTLLanguageVersion3_2;
      has_device_fence_ = true;
    } else {
      options.fastMathEnabled = NO;
      options.languageVersion = MTLLanguageVersion3_0;
    }
    library_ = [device_ newLibraryWithSource:@(kKernelSource) options:options error:&error];
    if (library_ == nil) fail(ErrorCode::device_failed, "metal: the kernels do not compile: {}", text_of(error));
#endif
  }

  id<MTLComputeCommandEncoder> open_encoder() {
    if (encoder_ != nil) return encoder_;
    commands_ = [queue_ commandBuffer];
    encoder_ = [commands_ computeCommandEncoderWithDispatchType:MTLDispatchTypeConcurrent];
    if (encoder_ == nil) fail(ErrorCode::device_failed, "metal: {} gives no encoder", name_);
    return encoder_;
  }

  // A kernel has all its parameters: those that it does not use get something, too.
  void bind(id<MTLComputeCommandEncoder> encoder, const Binding& binding, std::size_t index) {
    const bool empty = binding.buffer == nullptr || binding.begin == binding.end;
    id<MTLBuffer> buffer = empty ? nothing_ : metal_buffer(*binding.buffer);
    [encoder setBuffer:buffer offset:empty ? 0 : static_cast<NSUInteger>(binding.offset) atIndex:index];
  }

  // Weights in a mapped file: the pages themselves, where one buffer can hold them.
  bool can_map(const Buffer& buffer) const {
    const auto page = static_cast<std::uintptr_t>(getpagesize());
    return dynamic_cast<const BorrowedBuffer*>(&buffer) != nullptr &&
           reinterpret_cast<std::uintptr_t>(buffer.host()) % page == 0 &&
           static_cast<std::uint64_t>(buffer.bytes()) <= static_cast<std::uint64_t>(device_.maxBufferLength) - page;
  }

  id<MTLBuffer> metal_buffer(const Buffer& buffer) {
    if (const auto* ours = dynamic_cast<const AppleBuffer*>(&buffer)) return ours->get();
    // A mapping stays as long as the model does, and a device serves one model: what was mapped once is mapped still.
    auto& mapped = mapped_[{buffer.host(), buffer.bytes()}];
    if (mapped == nil) {
      const auto page = static_cast<NSUInteger>(getpagesize());
      const NSUInteger length = (static_cast<NSUInteger>(buffer.bytes()) + page - 1) / page * page;
      mapped = [device_ newBufferWithBytesNoCopy:buffer.host()
                                          length:length
                                         options:MTLResourceStorageModeShared
                                     deallocator:nil];
      if (mapped == nil) fail(ErrorCode::out_of_memory, "metal: {} cannot map {} bytes", name_, buffer.bytes());
    }
    return mapped;
  }

  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  id<MTLLibrary> library_ = nil;
  id<MTLBuffer> nothing_ = nil;
  id<MTLCommandBuffer> commands_ = nil;
  id<MTLCommandBuffer> running_ = nil;
  id<MTLComputeCommandEncoder> encoder_ = nil;
  std::map<std::string, id<MTLComputePipelineState>> pipelines_;
  std::map<std::pair<std::byte*, std::int64_t>, id<MTLBuffer>> mapped_;
  std::string name_;
  bool has_device_fence_ = false;
};

id<MTLDevice> system_device() {
  return MTLCreateSystemDefaultDevice();
}

}  // namespace

std::string gpu_absence() {
  @autoreleasepool {
    id<MTLDevice> device = system_device();
    if (device == nil) return "no Metal device";
    // Matrices and sums of simdgroups: from M1 and A14 on.
    if (![device supportsFamily:MTLGPUFamilyApple7]) {
      return fmt::format("no Metal device: {} is older than M1", text_of(device.name));
    }
    return {};
  }
}

std::unique_ptr<Gpu> make_gpu() {
  @autoreleasepool {
    if (const std::string absence = gpu_absence(); !absence.empty()) fail(ErrorCode::unsupported, "{}", absence);
    return std::make_unique<AppleGpu>(system_device());
  }
}

}  // namespace conclave::metal
