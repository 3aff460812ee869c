// CUDA's runtime for cudnn-frontend: the one that this program is linked with. The frontend opens
// libcudart.so by name, which need not be there, and is another copy of the runtime where it is. It
// calls libdl without qualification from its namespace, so what is declared here before its headers
// is what it calls.
#pragma once

namespace cudnn_frontend::detail {

// As libdl's, but for "libcudart.so." with the major version of our headers: a handle in which
// dlsym() finds the linked functions that the frontend needs to plan and run graphs on a stream.
void* dlopen(const char* file, int mode);
void* dlsym(void* library, const char* name);

}  // namespace cudnn_frontend::detail
