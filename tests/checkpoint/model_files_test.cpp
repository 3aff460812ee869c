// A model exported over an earlier one in the same directory: if the export is cut off anywhere,
// one of the two loads.
#include "zero/checkpoint/model_files.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"
#include "zero/base/error.h"
#include "zero/checkpoint/posix_files.h"

using namespace zero;
using namespace zero::checkpoint;
using zero::tests::contains;
using zero::tests::refusal;
using zero::tests::TemporaryDirectory;

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> tensor_names = {"a", "b", "c", "d"};
constexpr std::int64_t elements = 4;
// Makes one file, two and four.
constexpr std::int64_t sizes[] = {0, 32, 16};

struct CutOff {};

// Exports tensors filled with the value, only the first `tensors` of them; with all, the export is
// finished.
void export_model(const std::string& directory, std::int64_t max_file_bytes, float value,
                  std::size_t tensors = tensor_names.size() + 1) {
  std::vector<TensorEntry> entries;
  for (const std::string& name : tensor_names) entries.push_back({name, "F32", {elements}, 0, 0});
  ModelWriter writer(directory, entries, max_file_bytes);
  const std::vector<float> values(elements, value);
  for (std::size_t i = 0; i < std::min(tensors, tensor_names.size()); ++i)
    writer.write(std::as_bytes(std::span(values)));
  if (tensors > tensor_names.size()) writer.finish();
}

// Returns the one value of all tensors.
float value_in(const std::string& path) {
  const ModelReader reader(path);
  std::set<float> found;
  for (const std::string& name : tensor_names) {
    std::vector<float> values(elements);
    reader.read(name, 0, values);
    found.insert(values.begin(), values.end());
  }
  REQUIRE(found.size() == 1);
  return *found.begin();
}

// Reads the index before the single file, like our reader, and in the other order, like
// transformers.
void check_old_or_new(const std::string& directory) {
  CHECK(value_in(directory) >= 1);
  if (fs::exists(directory + "/model.safetensors"))
    CHECK(value_in(directory + "/model.safetensors") >= 1);
}

std::set<std::string> names_in(const std::string& root) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) names.insert(entry.path().filename());
  return names;
}

// Cuts the export off after this many tensors, or before one of the operations that follow. False
// if it completed.
bool export_cut_off(const std::string& directory, std::int64_t max_file_bytes, std::size_t point) {
  if (point <= tensor_names.size()) {
    export_model(directory, max_file_bytes, 2, point);
    return true;
  }
  std::size_t left = point - tensor_names.size();
  set_file_hook([&left](const FileEvent& event) -> int {
    if (event.op != FileOp::read && --left == 0) throw CutOff();
    return 0;
  });
  bool cut_off = false;
  try {
    export_model(directory, max_file_bytes, 2);
  } catch (const CutOff&) {
    cut_off = true;
  }
  set_file_hook({});
  return cut_off;
}

}  // namespace

TEST_CASE("an export over an earlier one leaves the old model or the new one, whole") {
  for (const std::int64_t before : sizes)
    for (const std::int64_t after : sizes) {
      CAPTURE(before);
      CAPTURE(after);
      bool goes_on = true;
      for (std::size_t point = 0; goes_on; ++point) {
        CAPTURE(point);
        const TemporaryDirectory directory;
        const std::string model = directory / "model";
        export_model(model, before, 1);
        goes_on = export_cut_off(model, after, point);
        check_old_or_new(model);
        if (point <= tensor_names.size() && after != 0) CHECK(value_in(model) == 1);
        if (!goes_on) CHECK(value_in(model) == 2);
        export_model(model, after, 3);
        CHECK(value_in(model) == 3);
        CHECK(names_in(model).size() == (after == 0 ? 1 : 64 / after + 1));
      }
    }
}

TEST_CASE("an export that is given up, or fails, leaves the old file and nothing next to it") {
  const TemporaryDirectory directory;
  const std::string model = directory / "model";
  export_model(model, 0, 1);
  export_model(model, 0, 2, 2);
  CHECK(names_in(model) == std::set<std::string>{single_model_name});
  for (const int error : {EIO, EPERM})
    for (const FileOp op : {FileOp::create, FileOp::reserve, FileOp::write, FileOp::sync,
                            FileOp::close, FileOp::rename}) {
      set_file_hook([=](const FileEvent& event) { return event.op == op ? error : 0; });
      const std::string words = refusal<SaveError>([&] { export_model(model, 0, 2); });
      set_file_hook({});
      CHECK(words.starts_with(model + "/model.safetensors.tmp-"));
      CHECK(words.ends_with(std::strerror(error)));
      CHECK(names_in(model) == std::set<std::string>{single_model_name});
      CHECK(value_in(model) == 1);
    }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const auto mode = static_cast<mode_t>(fs::status(model + "/model.safetensors").permissions());
  CHECK(mode == (0666 & ~mask));
}

TEST_CASE("a directory that cannot be made, and a name that is taken") {
  const TemporaryDirectory directory;
  directory.file("file", "x");
  CHECK(contains(refusal<SaveError>([&] { export_model(directory / "file", 0, 1); }),
                 "Not a directory"));
  CHECK(contains(refusal<SaveError>([&] { export_model(directory / "file/below", 0, 1); }),
                 "/file/below: cannot be made: Not a directory"));
  fs::create_directories(directory / "model/model.safetensors");
  CHECK(contains(refusal<SaveError>([&] { export_model(directory / "model", 0, 1); }),
                 "cannot rename to model.safetensors: Is a directory"));
}

TEST_CASE("names of files that are refused, and why") {
  CHECK(file_name_problem("a.b-1").empty());
  CHECK(file_name_problem("") == "is empty");
  CHECK(file_name_problem(".a") == "starts with a dot");
  CHECK(file_name_problem("a/b") == "has a slash");
  CHECK(file_name_problem("a\x7f") == "has a character outside printable ASCII");
}

// As in the cache of the Hugging Face hub.
TEST_CASE("a model whose files are links is read") {
  const TemporaryDirectory directory;
  export_model(directory / "model", 32, 1);
  fs::create_directory(directory / "links");
  for (const std::string& name : names_in(directory / "model"))
    fs::create_symlink(directory / ("model/" + name), directory / ("links/" + name));
  CHECK(value_in(directory / "links") == 1);
}

TEST_CASE("the files of an export have the usual names unless other files have them") {
  const TemporaryDirectory directory;
  const std::string model = directory / "model";
  const std::set<std::string> usual = {"model-00001-of-00002.safetensors",
                                       "model-00002-of-00002.safetensors", model_index_name};
  const std::set<std::string> next = {"model-g2-00001-of-00002.safetensors",
                                      "model-g2-00002-of-00002.safetensors", model_index_name};
  export_model(model, 32, 1);
  CHECK(names_in(model) == usual);
  export_model(model, 32, 2);
  CHECK(names_in(model) == next);
  // Files that belong to something else are left alone.
  directory.file("model/model-card.safetensors", "");
  directory.file("model/model-00001-of-00002.safetensors.tmp-17-0", "cut off");
  export_model(model, 32, 3);
  CHECK(names_in(model).contains("model-card.safetensors"));
  fs::remove(model + "/model-card.safetensors");
  CHECK(names_in(model) == usual);
  // An index that cannot be read names no files, and a link to a directory is equivalent to it.
  directory.file("model/" + std::string(model_index_name), "{");
  fs::create_directory_symlink(model, directory / "link");
  export_model(directory / "link", 32, 4);
  CHECK(names_in(model) == usual);
  CHECK(value_in(model) == 4);
}
