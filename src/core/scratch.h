// Aligned working memory that is kept between calls: one per thread and purpose, so calls from several threads never share.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace lilliput {

class Scratch {
 public:
  // At least `count` objects of T at a 64-byte boundary, contents undefined; valid until the next call.
  template <class T>
  T* get(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlign)));
      size_ = bytes;
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
