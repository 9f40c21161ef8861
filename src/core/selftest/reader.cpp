// Stress for the reader, for the address, undefined and thread sanitizers: several callers share one reader over a disk that delays,
// shortens, reorders, refuses and fails; every byte is compared, and the bytes around each destination.
//
//   lilliput_reader_stress [DIRECTORY] [ROUNDS]     exit code 1 at the first difference
#include "../reader.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "../arena.h"
#include "../faults.h"

using namespace lilliput;

namespace {

std::atomic<uint64_t> checked{0}, failed_reads{0}, cancelled{0};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "reader stress: %s\n", what);
  std::exit(1);
}

// The byte at a position of a file, without the file.
unsigned char expected(uint64_t file, uint64_t at) {
  uint64_t z = (at / 8 + 1) * 0x9e3779b97f4a7c15u + file * 0xd1342543de82ef95u;
  z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93u;
  return static_cast<unsigned char>((z ^ (z >> 32)) >> (8 * (at % 8)));
}

struct TestFile {
  std::string path;
  uint64_t size;
};

std::vector<TestFile> make_files(const std::string& directory) {
  std::vector<TestFile> files;
  for (const uint64_t size : {1ull, 511ull, 4096ull, 70001ull, 3000017ull, 4194304ull}) {
    const uint64_t number = files.size();
    std::vector<char> bytes(size);
    for (uint64_t at = 0; at < size; ++at) bytes[at] = static_cast<char>(expected(number, at));
    files.push_back({directory + "/reader-stress-" + std::to_string(std::random_device{}()) + "-" + std::to_string(number), size});
    std::ofstream(files.back().path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(size));
  }
  return files;
}

struct Flight {
  Ticket ticket;
  int file;
  uint64_t offset, nbytes;
  Extent extent;
  std::byte* address;
};

constexpr unsigned char kGuard = 0x5c;
constexpr size_t kSlot = (size_t{3} << 20) + (256 << 10), kMargin = 4096, kSlots = 4;

void check(const Flight& f) {
  for (uint64_t i = 0; i < f.nbytes; ++i)
    if (static_cast<unsigned char>(f.address[f.offset - f.extent.begin + i]) != expected(static_cast<uint64_t>(f.file), f.offset + i))
      fail("wrong bytes");
  for (size_t i = 0; i < kMargin; ++i)
    if (static_cast<unsigned char>(f.address[-1 - static_cast<std::ptrdiff_t>(i)]) != kGuard ||
        static_cast<unsigned char>(f.address[f.extent.length + i]) != kGuard)
      fail("bytes written outside the destination");
  checked += f.nbytes;
}

// One caller: a window of reads in flight over its own arena, some of them cancelled.
void call(Reader& reader, const std::vector<TestFile>& files, uint64_t seed, int reads) {
  std::mt19937_64 random(seed);
  const auto arena = Arena::make(kSlots * kSlot, 2);
  std::vector<std::optional<Flight>> window(kSlots);
  const auto finish = [&](std::optional<Flight>& flight) {
    if (!flight) return;
    try {
      if (random() % 8 == 0) {
        reader.cancel(flight->ticket);
        ++cancelled;
      } else {
        while (!reader.wait(flight->ticket, std::chrono::milliseconds(20))) reader.ready(flight->ticket);
        reader.take(flight->ticket);
        check(*flight);
      }
    } catch (const ReadError& error) {
      if (error.code != EIO && error.code != EINVAL)
        fail(error.what());  // EINVAL: the second refusal of a file that reads are buffered for
      ++failed_reads;
    } catch (const std::runtime_error&) {  // the reader was closed under our hands
      flight.reset();
      throw;
    }
    flight.reset();
  };
  try {
    for (int i = 0; i < reads; ++i) {
      const size_t slot = static_cast<size_t>(i) % kSlots;
      finish(window[slot]);
      const int file = static_cast<int>(random() % files.size());
      const uint64_t size = files[static_cast<size_t>(file)].size, offset = random() % size;
      const uint64_t nbytes = 1 + random() % std::min<uint64_t>(size - offset, 3 << 20);
      const Extent extent = reader.extent(file, offset, nbytes);
      std::byte* address = arena->address() + slot * kSlot + kMargin;
      std::memset(address - kMargin, kGuard, kMargin);
      std::memset(address + extent.length, kGuard, kMargin);
      window[slot] = Flight{reader.submit(file, offset, nbytes, address, random() % 2 == 0), file, offset, nbytes, extent, address};
    }
    for (auto& flight : window) finish(flight);
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()).find("closed") == std::string::npos) fail(error.what());
  }
}

void round(const std::vector<TestFile>& files, uint64_t seed) {
  std::mt19937_64 random(seed);
  FaultOptions faults;
  faults.seed = seed;
  faults.delay_us_max = seed % 3 ? 300 : 0;
  faults.short_reads = seed % 2;
  faults.reorder = seed % 4 < 2;
  faults.alignment = seed % 5 == 0 ? 4096 : 0;
  for (int i = 0; i < 6; ++i) faults.fail_at.emplace_back(1 + random() % 200, std::vector{EINTR, EINVAL, EIO}[random() % 3]);
  const auto plan = std::make_shared<FaultPlan>(faults);
  const std::vector<unsigned> threads{1, 2, 4, 8};
  Reader reader({threads[seed % 4], size_t{64} << (10 + seed % 5), seed % 7 != 0}, plan);
  for (const TestFile& file : files) reader.add(file.path, file.size);
  std::vector<std::thread> callers;
  for (uint64_t i = 0; i < 3; ++i) callers.emplace_back([&, i] { call(reader, files, seed * 16 + i, 40); });
  if (seed % 3 == 0) {
    while (!plan->await(60, std::chrono::milliseconds(20))) {
    }
    reader.close();
  }
  for (std::thread& caller : callers) caller.join();
  const ReaderStats stats = reader.stats();
  if (stats.in_flight_max > threads[seed % 4]) fail("more reads in flight than threads");
}

}  // namespace

int main(int count, char** words) {
  const std::string directory = count > 1 ? words[1] : "/tmp";
  const int rounds = count > 2 ? std::atoi(words[2]) : 24;
  const std::vector<TestFile> files = make_files(directory);
  for (int i = 0; i < rounds; ++i) round(files, static_cast<uint64_t>(i));
  for (const TestFile& file : files) std::remove(file.path.c_str());
  std::printf("%d rounds: %llu bytes compared, %llu reads failed on purpose, %llu cancelled\n", rounds,
              static_cast<unsigned long long>(checked.load()), static_cast<unsigned long long>(failed_reads.load()),
              static_cast<unsigned long long>(cancelled.load()));
  return checked.load() ? 0 : 1;
}
