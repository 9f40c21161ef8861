// Errors of the core that reach Python as Lilliput's own.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>

#include "io.h"

namespace lilliput::bind {

inline void translate_errors() {
  nanobind::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const ThreadError& error) {
      PyErr_SetString(nanobind::module_::import_("lilliput.errors").attr("DoesNotFitError").ptr(), error.what());
    }
  });
}

}  // namespace lilliput::bind
