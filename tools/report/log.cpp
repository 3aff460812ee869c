#include "tools/report/log.h"

#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "tools/options/json_text.h"
#include "tools/report/run_figures.h"
#include "zero/base/error.h"

namespace zero::report {
namespace {

using Json = nlohmann::ordered_json;

// Digits without "0x".
std::uint64_t parse_digits(const std::string& text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  if (const auto read = std::from_chars(text.data(), end, value, 16);
      read.ptr != end || read.ec != std::errc())
    throw std::invalid_argument("\"" + text + "\" is no hexadecimal number");
  return value;
}

// A value that is not finite is null, with only the bits given, as fp32.
double parse_value(const Json& record, const std::string& name) {
  const Json& value = record.at(name);
  if (!value.is_null()) return value.get<double>();
  return std::bit_cast<float>(static_cast<std::uint32_t>(parse_digits(record.at(name + "_bits"))));
}

void add_step(const Json& record, Variant& run) {
  const std::int64_t step = record.at("step"), expected = std::ssize(run.steps) + 1;
  if (step != expected)
    throw std::invalid_argument("step " + std::to_string(expected) + " is missing before step " +
                                std::to_string(step));
  run.steps.push_back(
      {parse_value(record, "loss"), parse_value(record, "grad_norm"), record.at("skipped")});
}

Comparison parse(const std::string& text, const std::string& source) {
  Comparison comparison;
  comparison.title = "Runs of train_gpt";
  Variant& run = comparison.variants.emplace_back();
  run.name = "run";
  std::vector<double> rates;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const Json record = parse_json<Json>(line, source + " is no log of a run: a line of it ");
    if (record.contains("variant"))
      throw std::invalid_argument("it is of --compare-stages; give the directory of its --report");
    if (record.contains("step")) {
      add_step(record, run);
      rates.push_back(record.at("tokens_per_s"));
    }
    if (!record.contains("summary")) continue;
    const Json& summary = record["summary"];
    run.digest = parse_digits(summary.at("digest"));
    comparison.parameters = summary.at("parameter_count");
    comparison.ranks = std::ssize(summary.at("ranks"));
  }
  if (comparison.ranks == 0)
    throw std::invalid_argument("it has no summary; the run has not come to its end");
  if (!rates.empty()) run.tokens_per_second = median_of(std::move(rates));
  return comparison;
}

}  // namespace

bool is_log(const std::string& text) {
  const Json first = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
  return first.is_object() && !first.contains("format");
}

Comparison comparison_of_log(const std::string& text, const std::string& source) {
  const auto refuse = [&](const std::string& problem) {
    return ConfigError(source + " is no log of a run of train_gpt --log-json: " + problem);
  };
  try {
    return parse(text, source);
  } catch (const Json::exception&) {
    throw refuse("a line lacks a value");
  } catch (const std::invalid_argument& error) {
    throw refuse(error.what());
  }
}

}  // namespace zero::report
