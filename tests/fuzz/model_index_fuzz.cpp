// Hugging Face's index of a model in several files, next to a file that exists.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "zero/base/error.h"
#include "zero/checkpoint/model_files.h"

using namespace zero::checkpoint;

namespace {

class Model {
 public:
  Model() {
    std::string pattern = (std::filesystem::temp_directory_path() / "zero-fuzz-XXXXXX").string();
    require(::mkdtemp(pattern.data()) != nullptr);
    root_ = pattern;
    const std::vector<TensorEntry> tensors = {{"a", "F32", {4}, 0, 0}, {"b", "F32", {4}, 0, 0}};
    ModelWriter writer(root_, tensors, 16);
    const std::vector<std::byte> data(16, std::byte{1});
    writer.write(data);
    writer.write(data);
    writer.finish();
  }
  ~Model() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  std::string index() const { return root_ + "/" + model_index_name; }

 private:
  std::string root_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Model model;
  std::ofstream(model.index(), std::ios::binary | std::ios::trunc)
      << std::string_view(reinterpret_cast<const char*>(data), size);
  try {
    const ModelReader reader(model.index());
    require(reader.tensor_count() > 0);
    for (const char* name : {"a", "b"}) {
      const TensorEntry* tensor = reader.find(name);
      if (tensor == nullptr) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor->elements()));
      reader.read(name, 0, values);
    }
  } catch (const zero::LoadError&) {
    // Refused.
  }
  return 0;
}
