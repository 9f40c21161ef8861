#include "arena.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "io.h"

namespace lilliput {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<uintptr_t, std::weak_ptr<Arena>> arenas;  // by address
};

Registry& registry = *new Registry;  // never destroyed: arenas may outlive main

// A fork waits for its turn: the child would find the registry locked by a thread that it does not have.
[[maybe_unused]] const int at_fork =
    pthread_atfork([] { registry.mutex.lock(); }, [] { registry.mutex.unlock(); }, [] { registry.mutex.unlock(); });

void touch_pages(std::byte* memory, size_t nbytes, unsigned threads) {
  const size_t page = page_bytes();
  std::atomic<size_t> next{0};
  const auto touch = [&] {
    for (size_t block; (block = next.fetch_add(kHugePage)) < nbytes;) {
      const size_t end = std::min(block + kHugePage, nbytes);
      for (size_t at = block; at < end; at += page) *const_cast<volatile std::byte*>(memory + at) = std::byte{0};
    }
  };
  SignalsBlocked quiet;
  std::vector<std::thread> helpers;
  helpers.reserve(threads);
  try {
    for (unsigned i = 1; i < threads; ++i) helpers.emplace_back(touch);
  } catch (const std::system_error&) {  // no more threads to be had: those there are do it all
  }
  touch();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace

std::shared_ptr<Arena> Arena::make(size_t nbytes, unsigned touch) {
  if (nbytes == 0) throw std::invalid_argument("nbytes: needed 1 or more, found 0");
  const size_t page = page_bytes();
  if (nbytes > SIZE_MAX - page) throw std::bad_alloc();
  const size_t mapped = (nbytes + page - 1) / page * page;
  bool huge = false;
  auto* memory = static_cast<std::byte*>(map_memory(mapped, huge));
  if (!memory) throw std::bad_alloc();
  std::shared_ptr<Arena> arena(new Arena(memory, nbytes, mapped, huge));
  if (touch) touch_pages(memory, mapped, touch);
  const std::lock_guard lock(registry.mutex);
  registry.arenas[reinterpret_cast<uintptr_t>(memory)] = arena;
  return arena;
}

std::shared_ptr<Arena> Arena::holding(const void* address, size_t nbytes) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::shared_ptr<Arena> arena;
  {
    const std::lock_guard lock(registry.mutex);
    auto next = registry.arenas.upper_bound(at);
    if (next == registry.arenas.begin()) return nullptr;
    arena = std::prev(next)->second.lock();
  }
  if (!arena) return nullptr;
  const size_t from = at - reinterpret_cast<uintptr_t>(arena->memory_);
  return from <= arena->nbytes_ && nbytes <= arena->nbytes_ - from ? arena : nullptr;
}

Arena::~Arena() {
  {
    // Before the memory goes: its address may be given to the next arena at once.
    const std::lock_guard lock(registry.mutex);
    registry.arenas.erase(reinterpret_cast<uintptr_t>(memory_));
  }
  unmap_memory(memory_, mapped_);
}

}  // namespace lilliput
