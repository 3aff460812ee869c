// Included by nccl.h, which needs nothing of it here.
#pragma once
