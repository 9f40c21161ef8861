// Checked views of numpy arrays: wrong type, shape or layout is a ValueError that names the argument, what was needed and what
// was found. Nothing is converted or copied in silence.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace lilliput::bind {

namespace nb = nanobind;

using In = nb::ndarray<nb::ro>;
using Out = nb::ndarray<>;

constexpr size_t kAny = SIZE_MAX;  // a dimension of any size

inline std::string shape_text(const size_t* shape, size_t n) {
  std::string text = "[";
  for (size_t i = 0; i < n; i++) text += (i ? ", " : "") + (shape[i] == kAny ? std::string("*") : std::to_string(shape[i]));
  return text + "]";
}

template <class T>
std::string type_text() {
  constexpr nb::dlpack::dtype type = nb::dtype<T>();
  const char* kind = type.code == uint8_t(nb::dlpack::dtype_code::Float) ? "float"
                     : type.code == uint8_t(nb::dlpack::dtype_code::Int) ? "int"
                                                                         : "uint";
  return kind + std::to_string(type.bits);
}

template <class A>
std::string found_text(const A& a) {
  static constexpr const char* kKinds[] = {"int", "uint", "float"};
  const nb::dlpack::dtype type = a.dtype();
  std::string text = type.code < 3 ? kKinds[type.code] + std::to_string(type.bits) : "an array of another type";
  size_t shape[16], n = a.ndim() < 16 ? a.ndim() : 16;
  for (size_t i = 0; i < n; i++) shape[i] = a.shape(i);
  return text + " " + shape_text(shape, n);
}

template <class A>
bool is_contiguous(const A& a) {
  if (a.size() == 0) return true;
  int64_t step = 1;
  for (size_t i = a.ndim(); i-- > 0;) {
    if (a.shape(i) != 1 && a.stride(i) != step) return false;
    step *= int64_t(a.shape(i));
  }
  return true;
}

[[noreturn]] inline void refuse(const char* name, const std::string& needed, const std::string& found) {
  throw nb::value_error((std::string(name) + ": needed " + needed + ", found " + found).c_str());
}

template <class T, class A>
auto pointer(const A& a) {
  if constexpr (A::ReadOnly)
    return static_cast<const T*>(a.data());
  else
    return static_cast<T*>(a.data());
}

// The data of a C-contiguous array of T with exactly this shape.
template <class T, class A>
auto array(const A& a, const char* name, std::initializer_list<size_t> shape) {
  bool good = a.dtype() == nb::dtype<T>() && a.device_type() == nb::device::cpu::value && a.ndim() == shape.size();
  size_t i = 0;
  for (size_t want : shape) {
    good = good && (want == kAny || a.shape(i) == want);
    i++;
  }
  const std::string needed = good ? "" : type_text<T>() + " " + shape_text(shape.begin(), shape.size());
  if (!good) refuse(name, needed, found_text(a));
  if (!is_contiguous(a)) refuse(name, "a C-contiguous array", "another layout");
  return pointer<T>(a);
}

// The same for any shape of `count` elements (kAny: any number).
template <class T, class A>
auto flat(const A& a, const char* name, size_t count = kAny) {
  if (!(a.dtype() == nb::dtype<T>()) || a.device_type() != nb::device::cpu::value || (count != kAny && a.size() != count))
    refuse(name, type_text<T>() + (count == kAny ? "" : " with " + std::to_string(count) + " elements"), found_text(a));
  if (!is_contiguous(a)) refuse(name, "a C-contiguous array", "another layout");
  return pointer<T>(a);
}

}  // namespace lilliput::bind
