#include "examples/gpt/cuda/product_choices.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <ios>
#include <span>
#include <sstream>

#include "zero/base/error.h"
#include "zero/base/input_file.h"

namespace gpt::cuda {
namespace {

// Writes a line with the version, then one per product: the key and the words of the algorithm.
std::string text_of(const ProductChoices& choices) {
  std::ostringstream text;
  text << DeviceMatmul::version() << '\n' << std::hex;
  for (const auto& [key, algorithm] : choices) {
    text << key;
    for (const std::uint64_t word : algorithm) text << ' ' << word;
    text << '\n';
  }
  return text.str();
}

// Reads the choices; `source` is named in messages.
ProductChoices choices_of(const std::string& text, const std::string& source) {
  std::istringstream in(text);
  std::string version, key;
  std::getline(in, version);
  if (version != DeviceMatmul::version())
    throw zero::ConfigError("--product-file " + source + " is for '" + version +
                            "', and this is '" + DeviceMatmul::version() +
                            "'; give another file, or remove this one");
  ProductChoices choices;
  in >> std::hex;
  while (in >> key)
    for (std::uint64_t& word : choices[key])
      if (!(in >> word))
        throw zero::ConfigError("--product-file " + source + ": the algorithm of product " + key +
                                " is cut off; remove the file");
  return choices;
}

ProductChoices read(const std::string& file) {
  if (!std::filesystem::exists(file)) return {};
  return choices_of(zero::read_input_file({file, "--product-file " + file, 16}), file);
}

// Writes a new file and renames it, so that a killed run leaves no incomplete file.
void write(const std::string& file, const std::string& text) {
  const std::string beside = file + ".new";
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(beside, file, error);
  if (!out || error)
    throw zero::ConfigError("--product-file " + file +
                            " cannot be written; give a path in a folder that exists");
}

void broadcast(zero::Runtime& runtime, std::string& text) {
  std::uint64_t size = text.size();
  runtime.broadcast(std::as_writable_bytes(std::span(&size, 1)));
  text.resize(size);
  runtime.broadcast(std::as_writable_bytes(std::span(text)));
}

}  // namespace

void choose_products(zero::Runtime& runtime, DeviceMatmul& matmul, const std::string& file) {
  std::string text;
  if (runtime.is_root()) {
    const ProductChoices known = read(file), choices = matmul.time_choices(known);
    text = text_of(choices);
    if (choices.size() > known.size()) write(file, text);
    std::printf("products %zu timed, %zu from %s\n", choices.size() - known.size(), known.size(),
                file.c_str());
  }
  broadcast(runtime, text);
  // A rank with another GPU or library keeps its own algorithms.
  if (text.starts_with(DeviceMatmul::version() + "\n")) matmul.take_choices(choices_of(text, file));
}

}  // namespace gpt::cuda
