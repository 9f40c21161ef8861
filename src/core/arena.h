// Memory that reads land in: private, anonymous, aligned to 2 MiB, on huge pages where the kernel grants them.
#pragma once

#include <cstddef>
#include <memory>

namespace lilliput {

class Arena {
 public:
  // Zeroed memory. With `touch` threads every page is touched now, in parallel: first touch costs 0.7-3 s per GB, which is better spent
  // once and early than in the middle of a pass. Throws std::invalid_argument for 0 bytes, std::bad_alloc.
  static std::shared_ptr<Arena> make(size_t nbytes, unsigned touch = 0);

  // The living arena that holds all of [address, address + nbytes), or nullptr: whoever writes through a bare address keeps it alive.
  static std::shared_ptr<Arena> holding(const void* address, size_t nbytes);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* address() const { return memory_; }
  size_t nbytes() const { return nbytes_; }
  bool huge() const { return huge_; }  // the kernel took the advice; whether it has huge pages to give shows in smaps only

 private:
  Arena(std::byte* memory, size_t nbytes, size_t mapped, bool huge) : memory_(memory), nbytes_(nbytes), mapped_(mapped), huge_(huge) {}

  std::byte* memory_;
  size_t nbytes_, mapped_;
  bool huge_;
};

}  // namespace lilliput
