// Aligned working memory that is kept between calls: one per thread and purpose, so calls from several threads never share.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

namespace lilliput {

// Of all objects, in bytes.
inline std::atomic<size_t> scratch_kept{0};
inline size_t scratch_bytes() { return scratch_kept.load(std::memory_order_relaxed); }

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { scratch_kept.fetch_sub(size_, std::memory_order_relaxed); }

  // At least `count` objects of T at a 64-byte boundary, contents undefined; valid until the next call.
  template <class T>
  T* get(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > size_) {
      memory_.reset();
      scratch_kept.fetch_sub(size_, std::memory_order_relaxed);
      size_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlign)));
      size_ = bytes;
      scratch_kept.fetch_add(size_, std::memory_order_relaxed);
    }
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
};

}  // namespace lilliput
