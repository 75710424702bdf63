#!/bin/sh
# After the library came or went: the loader finds libraries by a list.
if [ -x /sbin/ldconfig ]; then /sbin/ldconfig; fi
