#include "tools/report/table.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tools/report/number.h"

namespace zero::report {
namespace {

using Figure = std::function<std::string(const Variant&)>;
using Value = std::function<double(const Variant&)>;

class Builder {
 public:
  explicit Builder(const Comparison& comparison) : comparison_(comparison) {
    for (const Variant& variant : comparison.variants) table_.columns.push_back(variant.name);
  }

  void heading(std::string label) {
    table_.rows.push_back({Row::Kind::heading, std::move(label), {}});
  }
  void row(Row::Kind kind, std::string label, const Figure& figure) {
    Row row{kind, std::move(label), {}};
    for (const Variant& variant : comparison_.variants) row.cells.push_back(figure(variant));
    table_.rows.push_back(std::move(row));
  }
  void figures(Row::Kind kind, std::string label, const Unit& unit, const Value& value) {
    row(kind, std::move(label), [&](const Variant& variant) { return unit(value(variant)); });
  }
  double largest(const Value& value) const {
    double largest = 0;
    for (const Variant& variant : comparison_.variants) largest = std::max(largest, value(variant));
    return largest;
  }
  Table take() { return std::move(table_); }

 private:
  const Comparison& comparison_;
  Table table_;
};

constexpr auto part = Row::Kind::part, whole = Row::Kind::whole;

void add_memory(Builder& builder, const Comparison& comparison) {
  const auto peak = [](const Variant& v) { return static_cast<double>(v.peak()); };
  const auto resident = [](const Variant& v) { return v.resident; };
  const Unit unit = byte_unit(std::max(builder.largest(peak), builder.largest(resident)));
  const bool on_gpu = !used_in_host(comparison).empty();
  builder.heading(std::string(on_gpu ? "GPU memory per rank, " : "memory per rank, ") + unit.name);
  for (const std::string& category : used_categories(comparison))
    builder.figures(part, title_of(category), unit, [&](const Variant& v) {
      return static_cast<double>(memory_of(v, category).peak);
    });
  builder.figures(whole, comparison.planned ? "all of these" : "peak, all of these", unit, peak);
  if (comparison.planned) return;
  builder.figures(whole, "planned", unit,
                  [](const Variant& v) { return static_cast<double>(v.planned()); });
  if (!on_gpu) builder.figures(whole, "resident (PSS)", unit, resident);
}

// Beside a GPU.
void add_host(Builder& builder, const Comparison& comparison) {
  const std::vector<std::string> categories = used_in_host(comparison);
  if (categories.empty()) return;
  const auto rests = [](const Variant& v) { return static_cast<double>(v.host_bytes()); };
  const auto resident = [](const Variant& v) { return v.resident; };
  const Unit unit = byte_unit(std::max(builder.largest(rests), builder.largest(resident)));
  builder.heading(std::string("in host memory per rank, ") + unit.name);
  for (const std::string& category : categories)
    builder.figures(part, title_of(category), unit, [&](const Variant& v) {
      return static_cast<double>(in_host_of(v, category).peak);
    });
  builder.figures(whole, "in host memory, all of these", unit, rests);
  builder.figures(whole, "of it page-locked", unit,
                  [](const Variant& v) { return static_cast<double>(v.pinned_bytes()); });
  if (comparison.planned) return;
  builder.figures(whole, "resident (PSS)", unit, resident);
  for (const auto& [direction, title] :
       {std::pair{"to_host", "GPU to host"}, {"to_device", "host to GPU"}}) {
    const auto bytes = [&](const Variant& v) { return copy_of(v, direction).bytes; };
    if (builder.largest(bytes) == 0) continue;
    builder.figures(part, std::string(title) + " per step", unit, bytes);
    builder.row(part, std::string(title) + ", GB/s", [&](const Variant& v) {
      const CopyUse use = copy_of(v, direction);
      return use.seconds > 0 ? fixed(use.bytes / use.seconds / 1e9, 2) : "";
    });
  }
}

void add_file(Builder& builder, const Comparison& comparison) {
  const std::vector<std::string> categories = used_in_file(comparison);
  if (categories.empty()) return;
  const auto rests = [](const Variant& v) { return static_cast<double>(v.file_bytes()); };
  const Unit unit = byte_unit(builder.largest(rests));
  builder.heading(std::string("in the file per rank, ") + unit.name);
  for (const std::string& category : categories)
    builder.figures(part, title_of(category), unit, [&](const Variant& v) {
      return static_cast<double>(in_file_of(v, category).peak);
    });
  builder.figures(whole, "in the file, all of these", unit, rests);
  if (comparison.planned) return;
  for (const auto& [direction, did] : {std::pair{"read", "read"}, {"write", "written"}}) {
    const auto per_second = [&](const Variant& v) {
      const FileUse use = file_of(v, direction);
      return use.seconds > 0 ? fixed(use.bytes / use.seconds / 1e9, 2) : "";
    };
    const auto hidden = [&](const Variant& v) {
      const FileUse use = file_of(v, direction);
      return use.seconds > 0 ? fixed(100 * (1 - use.waited / use.seconds), 0) : "";
    };
    builder.figures(part, std::string(did) + " per step", unit,
                    [&](const Variant& v) { return file_of(v, direction).bytes; });
    builder.row(part, std::string(did) + ", GB/s", per_second);
    builder.row(part, std::string(did) + ", % hidden", hidden);
  }
}

void add_wire(Builder& builder, const Comparison& comparison) {
  const auto sent = [](const Variant& v) { return v.sent(); };
  const Unit unit = byte_unit(builder.largest(sent));
  builder.heading(std::string("on the wire per rank and step, ") + unit.name);
  for (const std::string& operation : used_operations(comparison))
    builder.figures(part, title_of(operation), unit,
                    [&](const Variant& v) { return wire_of(v, operation).sent; });
  builder.figures(whole, "sent, all of these", unit, sent);
  builder.figures(whole, "inside nodes", unit, [](const Variant& v) { return v.inside_node(); });
  builder.figures(whole, "between nodes", unit, [](const Variant& v) { return v.between_nodes(); });
}

void add_time(Builder& builder) {
  const auto total = [](const Variant& v) { return v.time.total(); };
  const Unit unit = time_unit(builder.largest(total));
  builder.heading(std::string("time per step, ") + unit.name);
  builder.figures(part, "compute", unit, [](const Variant& v) { return v.time.compute; });
  builder.figures(part, "wait on communication", unit,
                  [](const Variant& v) { return v.time.waiting; });
  builder.figures(part, "optimizer", unit, [](const Variant& v) { return v.time.optimizer; });
  builder.figures(part, "other", unit, [](const Variant& v) { return v.time.other; });
  builder.figures(whole, "step", unit, total);
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  // Bytes that go on with a UTF-8 character take no column.
  const auto columns = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
  const std::string blanks(width > columns ? width - columns : 0, ' ');
  return right ? blanks + text : text + blanks;
}

std::string trimmed(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

Table table_of(const Comparison& comparison) {
  Builder builder(comparison);
  add_memory(builder, comparison);
  add_host(builder, comparison);
  add_file(builder, comparison);
  if (comparison.planned) return builder.take();
  add_wire(builder, comparison);
  add_time(builder);
  builder.row(whole, "tokens/s", [](const Variant& v) { return fixed(v.tokens_per_second, 0); });
  builder.row(whole, "final loss", [](const Variant& v) {
    return v.steps.empty() ? "" : fixed(v.steps.back().loss, 6);
  });
  builder.row(whole, "bits equal", [&](const Variant& v) {
    return first_difference(comparison.variants.front(), v).empty() ? "yes" : "NO";
  });
  return builder.take();
}

std::string title_of(const std::string& name) {
  std::string title = name;
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

std::vector<std::string> verdict_of(const Comparison& comparison) {
  if (comparison.planned)
    return {
        "Nothing ran: this is what each rank holds from its start on. What the program itself "
        "takes "
        "(activations), what saves take and what libraries keep comes on top."};
  const Variant& reference = comparison.variants.front();
  std::vector<std::string> verdict;
  for (const Variant& variant : comparison.variants)
    if (const std::string found = first_difference(reference, variant); !found.empty())
      verdict.push_back(variant.name + " differs from " + reference.name + " at " + found + ".");
  if (verdict.empty())
    verdict.push_back("Bits equal: all " + std::to_string(reference.steps.size()) +
                      " losses and gradient norms, and the digest of weights and moments, " +
                      hexadecimal(reference.digest) + ".");
  return verdict;
}

std::string text_of(const Comparison& comparison) {
  constexpr std::size_t gap = 2;
  const Table table = table_of(comparison);
  std::size_t label_width = 0, cell_width = 10;
  for (const std::string& column : table.columns)
    cell_width = std::max(cell_width, column.size() + gap);
  for (const Row& row : table.rows) {
    label_width = std::max(label_width, row.label.size() + gap);
    for (const std::string& cell : row.cells) cell_width = std::max(cell_width, cell.size() + gap);
  }
  const auto line = [&](const std::string& label, const std::vector<std::string>& cells) {
    std::string text = padded(label, label_width, false);
    for (const std::string& cell : cells) text += padded(cell, cell_width, true);
    return trimmed(text);
  };
  std::string text = line("", table.columns);
  for (const Row& row : table.rows)
    text += line((row.kind == Row::Kind::part ? "  " : "") + row.label, row.cells);
  text += "\n" + comparison.title + "\n";
  for (const std::string& sentence : verdict_of(comparison)) text += sentence + "\n";
  return text;
}

}  // namespace zero::report
