# SPDX-License-Identifier: MIT
"""An OpenCV program as its users write them: UMat, so that OpenCV's own OpenCL kernels run. It knows nothing of rtxg.

Usage: opencv_program.py hog|filters.  Prints the device and checksums of the results.
"""

from __future__ import annotations

import hashlib
import sys

import cv2
import numpy as np


def checksum(array: np.ndarray) -> str:
    """Twelve digits that differ when the array does."""
    return hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest()[:12]


def main() -> int:
    if not cv2.ocl.haveOpenCL():
        print("no OpenCL", file=sys.stderr)
        return 1
    cv2.ocl.setUseOpenCL(True)
    print("device:", cv2.ocl.Device.getDefault().name())
    generator = np.random.default_rng(7)
    if sys.argv[1] == "hog":
        picture = cv2.GaussianBlur((generator.random((192, 128)) * 255).astype(np.uint8), (7, 7), 2)
        hog = cv2.HOGDescriptor((64, 128), (16, 16), (8, 8), (8, 8), 9, 1, -1.0, 0, 0.2, True, 2)
        hog.setSVMDetector(cv2.HOGDescriptor_getDefaultPeopleDetector())
        for _ in range(2):
            found, _ = hog.detectMultiScale(cv2.UMat(picture), hitThreshold=-2.0, winStride=(8, 8), scale=1.1)
            print("people:", len(found), checksum(np.array(sorted(map(tuple, found)))))
        return 0
    picture = cv2.UMat((generator.random((240, 320)) * 255).astype(np.uint8))
    for _ in range(20):
        blurred = cv2.GaussianBlur(picture, (5, 5), 1.5)
        small = cv2.resize(blurred, (160, 120), interpolation=cv2.INTER_LINEAR)
        _, mask = cv2.threshold(small, 120, 255, cv2.THRESH_BINARY)
        picture = cv2.resize(cv2.add(small, cv2.bitwise_not(mask)), (320, 240), interpolation=cv2.INTER_NEAREST)
    print("filtered:", checksum(picture.get()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
