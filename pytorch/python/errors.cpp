#include "pytorch/python/errors.h"

#include <exception>
#include <string>

#include "pytorch/python/words.h"
#include "zero/zero.h"

namespace zero::pytorch {

namespace py = pybind11;

void declare_errors(py::module_& module) {
  static py::exception<Error> base(module, "Error", PyExc_RuntimeError);
  // Errors that the Python package raises have no C++ instance with a code.
  const auto derive = [&](const char* name, int code) {
    PyObject* kind =
        PyErr_NewException((std::string("zerocore.") + name).c_str(), base.ptr(), nullptr);
    py::handle(kind).attr("exit_code") = code;
    return kind;
  };
  base.attr("exit_code") = Error::code;
  static PyObject* const usage = derive("UsageError", UsageError::code);
  static PyObject* const config = derive("ConfigError", ConfigError::code);
  static PyObject* const peer = derive("PeerFailed", PeerFailed::code);
  static PyObject* const disagreement = derive("DisagreementError", DisagreementError::code);
  static PyObject* const stalled = derive("StalledError", StalledError::code);
  module.attr("UsageError") = py::handle(usage);
  module.attr("ConfigError") = py::handle(config);
  module.attr("PeerFailed") = py::handle(peer);
  module.attr("DisagreementError") = py::handle(disagreement);
  module.attr("StalledError") = py::handle(stalled);
  py::register_exception_translator([](std::exception_ptr thrown) {
    const auto raise = [](py::handle kind, const Error& error) {
      py::object instance = py::reinterpret_borrow<py::object>(kind)(in_python(error.what()));
      instance.attr("exit_code") = error.exit_code();
      PyErr_SetObject(kind.ptr(), instance.ptr());
    };
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const UsageError& error) {
      raise(usage, error);
    } catch (const ConfigError& error) {
      raise(config, error);
    } catch (const PeerFailed& error) {
      raise(peer, error);
    } catch (const DisagreementError& error) {
      raise(disagreement, error);
    } catch (const StalledError& error) {
      raise(stalled, error);
    } catch (const Error& error) {
      raise(base, error);
    }
  });
}

}  // namespace zero::pytorch
