// Types of elements by name in safetensors files: "F32" for DType::fp32, and types that the engine
// only keeps, such as "BOOL".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "zero/base/dtype.h"

namespace zero {

std::string safetensors_name(DType dtype);
// The inverse; returns nothing for dtypes that are not used for computation.
std::optional<DType> dtype_named(std::string_view dtype);
// The dtype of a parameter that files have in this type: numbers, or any type of a byte.
std::optional<DType> parameter_dtype(std::string_view dtype);
// Bits per element; returns nothing for an unknown name.
std::optional<int> bits_of(std::string_view dtype);

}  // namespace zero
