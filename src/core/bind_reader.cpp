// Arena, Reader and FaultPlan for Python: conversion, and waiting that Ctrl-C can end.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "arena.h"
#include "faults.h"
#include "reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace lilliput {
namespace {

constexpr std::chrono::milliseconds kBetweenSignals{100};

// An arena as Python holds it. Views and reads in flight hold the memory too; it goes with the last of them.
class PyArena {
 public:
  PyArena(size_t nbytes, unsigned touch) {
    const nb::gil_scoped_release unlocked;
    arena_ = Arena::make(nbytes, touch);
  }

  const std::shared_ptr<Arena>& get() const {
    if (!arena_) throw std::invalid_argument("the arena is closed");
    return arena_;
  }

  nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> array() const {
    auto* held = new std::shared_ptr<Arena>(get());
    const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::shared_ptr<Arena>*>(p); });
    return {(*held)->address(), {(*held)->nbytes()}, owner};
  }

  void close() {
    if (!arena_) return;
    const long users = arena_.use_count() - 1;
    if (users > 0) throw nb::buffer_error(("the arena is in use: " + std::to_string(users) + " views or reads hold it").c_str());
    arena_.reset();
  }

 private:
  std::shared_ptr<Arena> arena_;
};

// Any path that Python's own `open` takes, also one that is no UTF-8.
std::string path_bytes(nb::handle path) {
  PyObject* encoded = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &encoded)) throw nb::python_error();
  const nb::bytes bytes = nb::steal<nb::bytes>(encoded);
  return {bytes.c_str(), bytes.size()};
}

nb::object path_text(const std::string& path) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

// As OSError(errno, message, path), or the subclass that Python has for that errno.
[[noreturn]] void raise_os_error(const ReadError& error) {
  const nb::object value = nb::borrow(PyExc_OSError)(error.code, error.what(), path_text(error.path));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())), value.ptr());
  throw nb::python_error();
}

// Calls `done` without the interpreter's lock, until it is true; between calls Ctrl-C gets its chance.
template <class Done>
void wait_until(Done done) {
  for (;;) {
    {
      const nb::gil_scoped_release unlocked;
      if (done()) return;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

nb::dict stats(const Reader& reader) {
  const ReaderStats s = reader.stats();
  nb::dict d;
  d["bytes_asked"] = s.bytes_asked;
  d["bytes_read"] = s.bytes_read;
  d["requests"] = s.requests;
  d["waited_s"] = s.waited_s;
  d["busy_s"] = s.busy_s;
  d["cpu_s"] = s.cpu_s;
  d["in_flight_max"] = s.in_flight_max;
  d["queued"] = s.queued;
  d["buffered_files"] = s.buffered_files;
  return d;
}

}  // namespace

void bind_reader(nb::module_& m) {
  nb::class_<PyArena>(m, "Arena",
                      "Zeroed private memory at a multiple of 2 MiB, on huge pages where the kernel grants them.\n\n"
                      "With `touch` threads every page is touched now, in parallel. A forked child sees zeros in its place.\n"
                      "Raises ValueError for 0 bytes, MemoryError.")
      .def(nb::init<size_t, unsigned>(), "nbytes"_a, "touch"_a = 0)
      .def_prop_ro("address", [](const PyArena& a) { return reinterpret_cast<uintptr_t>(a.get()->address()); })
      .def_prop_ro("nbytes", [](const PyArena& a) { return a.get()->nbytes(); })
      .def_prop_ro(
          "huge", [](const PyArena& a) { return a.get()->huge(); }, "The kernel took the advice to use huge pages.")
      .def("array", &PyArena::array, "All of it as uint8 [nbytes]; the view keeps the memory alive.")
      .def(
          "give_back",
          [](const PyArena& a, size_t offset, size_t nbytes) {
            if (offset > a.get()->nbytes() || nbytes > a.get()->nbytes() - offset)
              throw std::invalid_argument("give_back: needed a range inside the arena");
            forget_memory(a.get()->address() + offset, nbytes);
          },
          "offset"_a, "nbytes"_a, "Return whole pages of a range to the system; its contents are lost, the addresses stay usable.")
      .def("close", &PyArena::close, "Give the memory back now. Raises BufferError while views or reads use it.");

  nb::class_<FaultPlan>(
      m, "FaultPlan",
      "A disk that misbehaves on purpose, for tests; give it to a Reader.\n\n"
      "delay_us_max: each read takes up to this much longer. short_reads: half of them bring less than asked, then garbage.\n"
      "reorder: requests of one priority start in random order. fail_at: (n, errno) pairs, the nth read from 1 fails.\n"
      "alignment: direct reads that are no multiples of it are refused with EINVAL.")
      .def(
          "__init__",
          [](FaultPlan* self, uint64_t seed, unsigned delay_us_max, bool short_reads, bool reorder,
             std::vector<std::pair<uint64_t, int>> fail_at,
             size_t alignment) { new (self) FaultPlan({seed, delay_us_max, short_reads, reorder, std::move(fail_at), alignment}); },
          "seed"_a = 0, "delay_us_max"_a = 0, "short_reads"_a = false, "reorder"_a = false,
          "fail_at"_a = std::vector<std::pair<uint64_t, int>>(), "alignment"_a = 0)
      .def("hold", &FaultPlan::hold, nb::call_guard<nb::gil_scoped_release>(), "From now on reads stop before they reach the system.")
      .def("release", &FaultPlan::release, nb::call_guard<nb::gil_scoped_release>(),
           "Let the reads that were held go on, and all later ones.")
      .def(
          "await_calls", [](FaultPlan& p, size_t n) { wait_until([&] { return p.await(n, kBetweenSignals); }); }, "n"_a,
          "Wait until n reads have been asked for since the start.")
      .def(
          "calls",
          [](const FaultPlan& p) {
            nb::list all;
            for (const ReadCall& c : p.calls()) all.append(nb::make_tuple(c.file, c.offset, c.nbytes, c.direct));
            return all;
          },
          "(file, offset, nbytes, direct) of every read asked for, in order.");

  nb::class_<Reader>(m, "Reader",
                     "Reads extents of files into arenas with a few threads, past the page cache, in two priorities.\n\n"
                     "Safe to use from several threads. In a forked child every call raises RuntimeError.")
      .def(
          "__init__",
          [](Reader* self, unsigned threads, size_t request_bytes, bool direct, std::shared_ptr<FaultPlan> faults) {
            new (self) Reader({threads, request_bytes, direct}, std::move(faults));
          },
          "threads"_a = 4, "request_bytes"_a = size_t{4} << 20, "direct"_a = true, "faults"_a = nb::none())
      .def(
          "add",
          [](Reader& r, nb::handle path, uint64_t size) {
            const std::string bytes = path_bytes(path);
            try {
              const nb::gil_scoped_release unlocked;
              return r.add(bytes, size);
            } catch (const ReadError& error) {
              raise_os_error(error);
            }
          },
          "path"_a, "size"_a, "Open a file that has `size` bytes; its number. Raises OSError, or ValueError when it has another size.")
      .def(
          "mode", [](const Reader& r, int file) { return r.direct(file) ? "direct" : "buffered"; }, "file"_a,
          "\"direct\", or \"buffered\" where the system refuses direct reads (also found out while reading).")
      .def("alignment", &Reader::alignment, "file"_a, "Of offsets, lengths and addresses, in bytes; never changes for a file.")
      .def(
          "buffered",
          [](const Reader& r) {
            nb::list all;
            for (const auto& [path, why] : r.buffered()) all.append(nb::make_tuple(path_text(path), why));
            return all;
          },
          "(path, why) of every file read through the page cache.")
      .def(
          "extent",
          [](const Reader& r, int file, uint64_t offset, uint64_t nbytes) {
            const Extent e = r.extent(file, offset, nbytes);
            return std::pair(e.begin, e.length);
          },
          "file"_a, "offset"_a, "nbytes"_a,
          "(begin, length) of the range that is read for [offset, offset + nbytes): the destination needs `length` bytes, and what was "
          "asked\n"
          "for starts at `offset - begin` in it. Bytes past the end of the file are undefined.")
      .def(
          "submit",
          [](Reader& r, int file, uint64_t offset, uint64_t nbytes, uintptr_t address, bool urgent) {
            return r.submit(file, offset, nbytes, reinterpret_cast<void*>(address), urgent);
          },
          "file"_a, "offset"_a, "nbytes"_a, "address"_a, "urgent"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Start reading extent(file, offset, nbytes) to `address`, inside one arena and aligned; a ticket. Urgent reads go before all\n"
          "others. The memory is the reader's until `wait` or `cancel` has returned.")
      .def(
          "wait",
          [](Reader& r, Ticket ticket) {
            wait_until([&] { return r.wait(ticket, kBetweenSignals); });
            try {
              return r.take(ticket);
            } catch (const ReadError& error) {
              raise_os_error(error);
            }
          },
          "ticket"_a,
          "Wait until everything is there, and free the ticket; the seconds waited. Raises OSError with errno, message and path.\n"
          "Interrupted by a signal whose handler raises, it leaves the ticket as it is: cancel it.")
      .def("ready", &Reader::ready, "ticket"_a, nb::call_guard<nb::gil_scoped_release>(), "Would `wait` return (or raise) at once?")
      .def("cancel", &Reader::cancel, "ticket"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Drop what has not started, wait for what has, and free the ticket.")
      .def("tickets", &Reader::tickets, "urgent"_a, "All tickets, urgent or not, that have neither been waited for nor cancelled.")
      .def("close", &Reader::close, nb::call_guard<nb::gil_scoped_release>(),
           "Drop what has not started, wait for what has, close the files.")
      .def("stats", &stats, "Counters since the start, as a dict; seconds and bytes.");
}

}  // namespace lilliput
