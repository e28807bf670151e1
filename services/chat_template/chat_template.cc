#include "services/chat_template/chat_template.h"

#include <pybind11/embed.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>

#include "services/chat_template/prelude.h"

namespace py = pybind11;

#if defined(__SANITIZE_ADDRESS__)
// The interpreter is never ended, so at exit what it and the libraries it loads still hold looks
// leaked.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  return "leak:libpython3\nleak:libcrypto\n";
}
#endif

namespace foretoken {
namespace {

constexpr std::uint64_t kStepsBetweenClockReads = 512;
// Compiling happens once, at start; a long template takes a few million lines of Python.
constexpr std::uint64_t kMaxCompileSteps = 100'000'000;
constexpr std::chrono::milliseconds kMaxCompileTime{20'000};

// The interpreter of the process. Never ended: other threads may hold templates until the very last
// moment.
class Interpreter {
 public:
  static Result<Interpreter*> get() {
    static std::mutex mutex;
    static Interpreter* instance = nullptr;
    static std::optional<Error> failure;  // a second attempt would fail the same way
    const std::lock_guard lock(mutex);
    if (failure) return *failure;
    if (instance != nullptr) return instance;
    if (const auto problem = start()) {
      failure = Error{ErrorCode::kUnavailable,
                      "the interpreter for chat templates does not start: " + *problem};
      return *failure;
    }
    instance = new Interpreter();
    try {
      instance->module_ = py::dict();
      instance->module_["__builtins__"] = py::module_::import("builtins");
      instance->module_["__name__"] = "foretoken_chat_template";
      py::exec(kPrelude, instance->module_);
    } catch (const py::error_already_set& error) {
      failure = Error{ErrorCode::kUnavailable,
                      std::string("Jinja2 for chat templates does not load (package "
                                  "python3-jinja2): ") +
                          error.what()};
    }
    PyEval_SaveThread();  // from here on every user takes the lock itself
    if (failure) return *failure;
    return instance;
  }

  py::object operator[](const char* name) const { return module_[name]; }

 private:
  // Isolated: no environment variables, no user packages, no current folder, no signal handlers.
  // Paths are fixed, so that neither PATH nor PYTHONHOME can bring another library in.
  static std::optional<std::string> start() {
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    config.install_signal_handlers = 0;
    config.site_import = 0;
    config.write_bytecode = 0;
    config.module_search_paths_set = 1;
    const auto set = [&config](wchar_t** field, const char* text) {
      return PyConfig_SetBytesString(&config, field, text);
    };
    PyStatus status = set(&config.program_name, FORETOKEN_PYTHON_EXECUTABLE);
    if (!PyStatus_Exception(status)) status = set(&config.executable, FORETOKEN_PYTHON_EXECUTABLE);
    for (const wchar_t* path :
         {L"" FORETOKEN_PYTHON_STDLIB, L"" FORETOKEN_PYTHON_DYNLOAD, L"" FORETOKEN_PYTHON_PACKAGES})
      if (!PyStatus_Exception(status))
        status = PyWideStringList_Append(&config.module_search_paths, path);
    if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (!PyStatus_Exception(status)) return std::nullopt;
    return status.err_msg != nullptr ? status.err_msg : "unknown reason";
  }

  py::dict module_;
};

// Counts lines of Python while it lives, and stops the program that runs past its limits. Needs the
// interpreter's lock.
class StepLimit {
 public:
  StepLimit(std::uint64_t max_steps, std::chrono::milliseconds max_time)
      : max_steps_(max_steps), deadline_(std::chrono::steady_clock::now() + max_time) {
    active_ = this;
    PyEval_SetTrace(&StepLimit::on_event, nullptr);
  }
  ~StepLimit() {
    PyEval_SetTrace(nullptr, nullptr);
    active_ = nullptr;
  }
  StepLimit(const StepLimit&) = delete;
  StepLimit& operator=(const StepLimit&) = delete;

 private:
  static int on_event(PyObject*, PyFrameObject*, int, PyObject*) {
    StepLimit& self = *active_;
    if (++self.n_steps_ > self.max_steps_) {
      PyErr_SetString(PyExc_TimeoutError, "it takes too many steps");
      return -1;
    }
    if (self.n_steps_ % kStepsBetweenClockReads == 0 &&
        std::chrono::steady_clock::now() > self.deadline_) {
      PyErr_SetString(PyExc_TimeoutError, "it takes too long");
      return -1;
    }
    return 0;
  }

  static thread_local StepLimit* active_;
  std::uint64_t max_steps_;
  std::chrono::steady_clock::time_point deadline_;
  std::uint64_t n_steps_ = 0;
};

thread_local StepLimit* StepLimit::active_ = nullptr;

// As UTF-8, what is no Unicode escaped: a template may raise any text, half of a surrogate pair
// too.
std::string escaped(const py::object& object) {
  return py::bytes(py::str(object).attr("encode")("utf-8", "backslashreplace"));
}

// What a person needs of a Python exception: the message, with the kind where that says more than
// the message.
std::string describe(py::error_already_set& error) {
  std::string kind = py::str(error.type().attr("__name__"));
  std::string text = error.value() ? escaped(error.value()) : std::string();
  if (text.empty()) return kind;
  return kind == "TemplateError" || kind == "BadInput" ? text : kind + ": " + text;
}

Error failed(const std::string& what) { return Error{ErrorCode::kInvalidValue, what, "messages"}; }

}  // namespace

struct ChatTemplate::Impl {
  Interpreter* interpreter = nullptr;
  py::object compiled;
  py::dict tokens;
  ChatTemplateLimits limits;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ChatTemplate::~ChatTemplate() {
  const py::gil_scoped_acquire lock;
  impl_.reset();
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(
    std::string_view source,
    const SpecialTokens& tokens,
    const ChatTemplateLimits& limits,
    std::optional<std::string_view> tool_source) {
  const std::size_t n_bytes = std::max(source.size(), tool_source.value_or("").size());
  if (n_bytes > limits.max_source_bytes)
    return Error{ErrorCode::kMalformed, "the chat template has " + std::to_string(n_bytes) +
                                            " bytes; the limit is " +
                                            std::to_string(limits.max_source_bytes)};
  Result<Interpreter*> interpreter = Interpreter::get();
  if (!interpreter.ok()) return interpreter.error();
  const py::gil_scoped_acquire lock;
  try {
    auto impl = std::make_unique<Impl>();
    impl->interpreter = *interpreter;
    impl->limits = limits;
    for (const auto& [name, text] : tokens) impl->tokens[py::str(name)] = py::str(text);
    const StepLimit watch(kMaxCompileSteps, kMaxCompileTime);
    const py::object for_tools =
        tool_source ? py::object(py::str(tool_source->data(), tool_source->size())) : py::none();
    impl->compiled =
        (**interpreter)["compile_template"](py::str(source.data(), source.size()), for_tools);
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
  } catch (py::error_already_set& error) {
    return Error{ErrorCode::kMalformed,
                 "the chat template is not valid Jinja2: " + describe(error)};
  }
}

Result<std::string> ChatTemplate::render(std::string_view messages_json,
                                         bool add_generation_prompt,
                                         std::string_view extra_variables_json) const {
  const std::size_t n_bytes = messages_json.size() + extra_variables_json.size();
  if (n_bytes > impl_->limits.max_input_bytes)
    return failed("the messages have " + std::to_string(n_bytes) + " bytes; the limit is " +
                  std::to_string(impl_->limits.max_input_bytes));
  const py::gil_scoped_acquire lock;
  try {
    const py::object render = (*impl_->interpreter)["render"];
    const StepLimit watch(impl_->limits.max_steps, impl_->limits.max_time);
    const py::object text = render(
        impl_->compiled, impl_->tokens, py::str(messages_json.data(), messages_json.size()),
        add_generation_prompt, py::str(extra_variables_json.data(), extra_variables_json.size()),
        impl_->limits.max_output_bytes);
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (bytes == nullptr) throw py::error_already_set();  // a lone surrogate in the messages
    if (static_cast<std::size_t>(size) > impl_->limits.max_output_bytes)
      return failed("the prompt has " + std::to_string(size) + " bytes; the limit is " +
                    std::to_string(impl_->limits.max_output_bytes));
    return std::string(bytes, static_cast<std::size_t>(size));
  } catch (py::error_already_set& error) {
    if (error.matches(PyExc_MemoryError)) throw std::bad_alloc();
    const std::string reason = describe(error);
    return failed("the chat template refuses these messages: " + reason);
  }
}

Result<std::string> ChatTemplate::engine() {
  Result<Interpreter*> interpreter = Interpreter::get();
  if (!interpreter.ok()) return interpreter.error();
  const py::gil_scoped_acquire lock;
  return std::string(py::str((**interpreter)["describe"]()));
}

}  // namespace foretoken
