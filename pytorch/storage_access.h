// Ends the errors of a storage that
// StorageImpl::release_data_and_set_meta_custom_data_ptr_error_msg_() has begun: torch has a member
// for that from 2.12 on. Before, its private members are set.
#pragma once

#include <c10/core/StorageImpl.h>
#include <torch/version.h>

#include <optional>

namespace zero::pytorch {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 12

inline void allow_access(c10::StorageImpl& storage) {
  storage.clear_data_ptr_access_error_msg_();
}

#else

void allow_access(c10::StorageImpl& storage);

// An explicit instantiation may name private members, and defines a friend that uses them.
template <auto throws, auto refresh>
struct StorageAccess {
  friend void allow_access(c10::StorageImpl& storage) {
    storage.*throws = false;
    storage.get_extra_meta().custom_data_ptr_error_msg_ = std::nullopt;
    (storage.*refresh)();
  }
};
template struct StorageAccess<&c10::StorageImpl::throw_on_immutable_data_ptr_,
                              &c10::StorageImpl::refresh_has_data_ptr_check>;

#endif

}  // namespace zero::pytorch
