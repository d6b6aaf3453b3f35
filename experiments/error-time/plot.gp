set terminal svg size 1200,430 font "sans,13" background rgb "white"
set output "plot.svg"
set datafile separator tab
set datafile commentschars "#"
set logscale xy
set format y "10^{%T}"
set format x "%g"
set grid
set key bottom right samplen 1 font ",10"
set yrange [1e-11:1]
set xlabel "milliseconds, one core"
set multiplot layout 1,3
do for [sigma in "4 32 256"] {
    set title sprintf("sigma = %s", sigma)
    if (sigma eq "256") { set key; set xrange [10:3000] } else { unset key; set xrange [1:1000] }
    if (sigma eq "4") { set ylabel "rms error of the output" } else { unset ylabel }
    line(m) = sprintf("< awk -F'\t' '$1 == \"%s\" && $3 == %s && $7 > 0' data.tsv", m, sigma)
    plot for [m in "'plsh stratified' 'plsh iid' masks mean window exact fixed"] \
        line(m) using ($4 * 1000):7 with linespoints pointtype 7 pointsize 0.5 title m
}
unset multiplot
