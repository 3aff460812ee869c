// The comparison's table and its three reports: figures, verdicts, and that nothing in a name gets
// out of its place.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "tests/tools/report_samples.h"
#include "tools/report/html.h"
#include "tools/report/html_style.h"
#include "tools/report/json.h"
#include "tools/report/markdown.h"
#include "tools/report/markup.h"
#include "tools/report/number.h"
#include "tools/report/report.h"
#include "tools/report/table.h"
#include "zero/base/error.h"
#include "zero/base/ledger.h"

namespace {

using namespace zero::report;

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

std::vector<std::string> cells_of(const Table& table, const std::string& label) {
  for (const Row& row : table.rows)
    if (row.label == label) return row.cells;
  return {"there is no such row"};
}

using Cells = std::vector<std::string>;

TEST_CASE("numbers are grouped, rounded and have one unit per chart") {
  CHECK(fixed(0, 2) == "0.00");
  CHECK(fixed(999.995, 1) == "1,000.0");
  CHECK(fixed(1234567.891, 2) == "1,234,567.89");
  CHECK(fixed(-1234.5, 0) == "-1,234");
  CHECK(fixed(-123, 0) == "-123");
  CHECK(fixed(std::nan(""), 2) == "not finite");
  CHECK(fixed(1e300, 0).size() == 301 + 100);
  CHECK(std::string(byte_unit(999).name) == "kB");
  CHECK(std::string(byte_unit(5e6).name) == "MB");
  CHECK(byte_unit(24e9)(24e9) == "24.00");
  CHECK(time_unit(0.25)(0.25) == "250.0");
  CHECK(hexadecimal(0xabc) == "0x0000000000000abc");
  for (const double range : {1e-9, 0.3, 1., 7., 65.28, 1e12}) {
    const double ticks = range / tick_distance(range, 6);
    CHECK(ticks > 2);
    CHECK(ticks <= 6);
  }
}

TEST_CASE("the table has the figures of each variant and no row that nobody uses") {
  const Table table = table_of(samples::plain());
  CHECK(table.columns == Cells{"stage 0", "stage 1"});
  CHECK(cells_of(table, "parameters") == Cells{"4.00", "4.00"});
  CHECK(cells_of(table, "optimizer state") == Cells{"8.00", "4.00"});
  CHECK(cells_of(table, "peak, all of these") == Cells{"12.00", "8.00"});
  CHECK(cells_of(table, "planned") == Cells{"12.00", "8.00"});
  CHECK(cells_of(table, "resident (PSS)") == Cells{"13.50", "9.50"});
  CHECK(cells_of(table, "in the file, all of these") == Cells{"2.00", "2.00"});
  CHECK(cells_of(table, "read per step") == Cells{"2.00", "2.00"});
  CHECK(cells_of(table, "read, GB/s") == Cells{"2.00", "2.00"});
  CHECK(cells_of(table, "read, % hidden") == Cells{"75", "75"});
  CHECK(cells_of(table, "written, GB/s") == Cells{"", ""});
  CHECK(cells_of(table, "all gather") == Cells{"3.00", "3.00"});
  CHECK(cells_of(table, "inside nodes") == Cells{"2.00", "2.00"});
  CHECK(cells_of(table, "between nodes") == Cells{"1.00", "1.00"});
  CHECK(cells_of(table, "wait on communication") == Cells{"200.0", "200.0"});
  CHECK(cells_of(table, "step") == Cells{"721.0", "721.0"});
  CHECK(cells_of(table, "tokens/s") == Cells{"12,346", "12,346"});
  CHECK(cells_of(table, "final loss") == Cells{"3.000000", "3.000000"});
  CHECK(cells_of(table, "bits equal") == Cells{"yes", "yes"});
  for (const Row& row : table.rows) {
    CHECK(row.label != "file");
    CHECK(row.label != "all to all");
  }
}

TEST_CASE("GPU ranks: what lies in host memory is apart, and what crosses has a speed if timed") {
  const Table table = table_of(samples::on_gpu());
  const auto headings = [&](const Table& of) {
    Cells labels;
    for (const Row& row : of.rows)
      if (row.kind == Row::Kind::heading) labels.push_back(row.label);
    return labels;
  };
  CHECK(headings(table)[0] == "GPU memory per rank, MB");
  CHECK(headings(table)[1] == "in host memory per rank, MB");
  CHECK(headings(table_of(samples::plain()))[0] == "memory per rank, MB");
  CHECK(headings(table_of(samples::plain()))[1] == "in the file per rank, MB");
  CHECK(cells_of(table, "peak, all of these") == Cells{"12.00", "4.00"});
  CHECK(cells_of(table, "gradients") == Cells{"0.00", "2.00"});
  CHECK(cells_of(table, "in host memory, all of these") == Cells{"0.50", "6.50"});
  CHECK(cells_of(table, "of it page-locked") == Cells{"0.50", "2.50"});
  CHECK(cells_of(table, "resident (PSS)") == Cells{"3.00", "3.00"});
  CHECK(cells_of(table, "GPU to host per step") == Cells{"0.00", "2.00"});
  CHECK(cells_of(table, "GPU to host, GB/s") == Cells{"", "20.00"});
  CHECK(cells_of(table, "host to GPU per step") == Cells{"0.00", "1.00"});
  CHECK(cells_of(table, "host to GPU, GB/s") == Cells{"", ""});
  CHECK(cells_of(table_of(samples::plain()), "of it page-locked")[0] == "there is no such row");
  const std::string html = html_of(samples::on_gpu());
  CHECK(count_of(html, "<svg") == 5);
  CHECK(count_of(html, "Most: stage 1 + cpu with 6.50 MB per rank, 38 % of it page-locked.") == 1);
  const auto json = nlohmann::json::parse(json_of(samples::on_gpu())).at("variants")[1];
  CHECK(json.at("in_host").at("optimizer_state").at("peak") == 4'000'000);
  CHECK(json.at("in_pinned").at("gradients").at("planned") == 2'000'000);
  CHECK(json.at("copies_per_step").at("to_host").at("bytes") == 2e6);
}

TEST_CASE("each kind of other bits is told, with its place") {
  const Variant reference = samples::variant("stage 0", 1);
  const auto found = [&](auto change) {
    Variant other = reference;
    change(other);
    return first_difference(reference, other);
  };
  CHECK(found([](Variant&) {}) == "");
  CHECK(found([](Variant& v) { v.tokens_per_second = 1; }) == "");
  // One unit in the last place, and a sign that == would not see.
  CHECK(found([](Variant& v) {
          v.steps[1].loss = std::nextafter(3.25, 4);
        }).starts_with("step 2: loss 3.25 (0x400a000000000001), not 3.25 (0x400a000000000000)"));
  CHECK(found([](Variant& v) {
          v.steps[0].gradient_norm = -1.25;
        }).starts_with("step 1: gradient norm -1.25"));
  CHECK(found([](Variant& v) { v.steps[2].skipped = true; }) == "step 3: skipped, not applied");
  CHECK(found([](Variant& v) { v.steps.pop_back(); }) == "2 steps, not 3");
  CHECK(found([](Variant& v) { v.digest = 1; }).starts_with("weights or moments: digest 0x00"));

  const Comparison comparison = samples::awkward();
  CHECK(!bits_equal(comparison));
  CHECK(cells_of(table_of(comparison), "bits equal") ==
        Cells{"yes", "yes", "yes", "NO", "NO", "NO"});
  const std::string text = text_of(comparison);
  CHECK(count_of(text, " differs from stage 0 at ") == 3);
  CHECK(count_of(text, "Bits equal:") == 0);
  CHECK(count_of(html_of(comparison), "class=\"verdict differs\"") == 1);
  CHECK(count_of(html_of(samples::plain()), "class=\"verdict\"") == 1);
}

TEST_CASE("report.json is JSON, says what was found, and reads back bit for bit") {
  for (const Comparison& comparison :
       {samples::plain(), samples::awkward(), samples::least(), samples::on_gpu()}) {
    const std::string text = json_of(comparison);
    const auto json = nlohmann::json::parse(text);
    CHECK(json.at("bits_equal") == bits_equal(comparison));
    CHECK(json.at("variants").size() == comparison.variants.size());
    CHECK(json.at("variants")[0].at("peak_bytes") == comparison.variants[0].peak());
    const Comparison read = comparison_of(text, "report.json");
    CHECK(json_of(read) == text);
    for (std::size_t v = 0; v < read.variants.size(); ++v)
      CHECK(first_difference(comparison.variants[v], read.variants[v]) == "");
  }
  const auto diverged = nlohmann::json::parse(json_of(samples::awkward())).at("variants")[4];
  CHECK(diverged.at("final_loss").is_null());
  CHECK(diverged.at("steps")[2].at("loss_bits") == "0x7ff0000000000000");
}

TEST_CASE("what is no report is refused by name") {
  for (const char* text : {"", "[]", "{}", R"({"format": "zero-comparison", "version": 2})",
                           R"({"format": "zero-comparison", "version": 1, "variants": 3})"}) {
    try {
      comparison_of(text, "some.json");
      FAIL("taken: " << text);
    } catch (const zero::ConfigError& error) {
      CHECK(std::string(error.what()).starts_with("some.json is no report.json"));
    }
  }
  std::string cut = json_of(samples::plain());
  cut.replace(cut.find("0x"), 2, "ab");
  CHECK_THROWS_AS(comparison_of(cut, "some.json"), zero::ConfigError);
}

TEST_CASE("the page holds all it needs, and names stay names") {
  for (const Comparison& comparison : {samples::plain(), samples::awkward(), samples::least()}) {
    const std::string html = html_of(comparison);
    for (const char* foreign : {"<script", "http:", "https:", "//cdn", "src=", "href=", "url(",
                                "@import", "<link", "<img", "<iframe", "javascript:"})
      CHECK_MESSAGE(count_of(html, foreign) == 0, foreign);
    // A name that closed the style sheet would be a second end of it.
    CHECK(count_of(html, "</style>") == 1);
    CHECK(count_of(html, "<svg") == count_of(html, "</svg>"));
    for (const char* coordinate : {"\"nan", "Mnan", "Lnan", " nan", "\"inf"})
      CHECK(count_of(html, coordinate) == (coordinate[0] == ' ' && !bits_equal(comparison)));
  }
  CHECK(count_of(html_of(samples::plain()), "<svg") == 4);
  CHECK(count_of(html_of(samples::least()), "Nothing is sent") == 1);
  CHECK(escape_html("<a href=\"x\">&'") == "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
}

TEST_CASE("every category of the ledger has a colour of its own, in bars and legend alike") {
  const std::string style = html_style;
  std::set<std::string> colors;
  for (int i = 0; i < zero::memory_category_count; ++i) {
    const std::string name = zero::name_of(static_cast<zero::MemoryCategory>(i));
    std::smatch bar, swatch;
    const auto found = [&](const std::string& selector, const char* property, std::smatch& match) {
      return std::regex_search(
          style, match,
          std::regex("\\." + selector + name + "[ ,][^{]*\\{ *" + property + ": (#[0-9a-f]{6})"));
    };
    REQUIRE_MESSAGE(found("c-", "fill", bar), name);
    REQUIRE_MESSAGE(found("s-", "background", swatch), name);
    CHECK(bar[1] == swatch[1]);
    CHECK_MESSAGE(colors.insert(bar[1]).second, name);
  }
}

TEST_CASE("a row of report.md has as many cells as the table, whatever the names") {
  for (const Comparison& comparison : {samples::plain(), samples::awkward()}) {
    std::istringstream lines(markdown_of(comparison));
    std::size_t rows = 0;
    for (std::string line; std::getline(lines, line);) {
      CHECK(count_of(line, "<script") == 0);
      if (!line.starts_with("|")) continue;
      ++rows;
      CHECK(count_of(line, "|") - count_of(line, "\\|") == comparison.variants.size() + 2);
    }
    CHECK(rows == table_of(comparison).rows.size() + 2);
  }
}

TEST_CASE("a directory that cannot take the report is refused before the work") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("report_test." + std::to_string(::getpid()));
  prepare_directory((folder / "a" / "b").string());
  write_report(samples::plain(), (folder / "a" / "b").string());
  for (const char* name : {"report.html", "report.md", "report.json"})
    CHECK(std::filesystem::file_size(folder / "a" / "b" / name) > 500);
  std::ofstream(folder / "file") << "in the way";
  CHECK_THROWS_AS(prepare_directory((folder / "file" / "x").string()), zero::ConfigError);
  CHECK_THROWS_AS(write_report(samples::plain(), (folder / "none").string()), zero::SaveError);
  std::filesystem::remove_all(folder);
}

}  // namespace
